"""Honest and hostile networks between a user and a server's instances."""
