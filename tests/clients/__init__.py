"""Clients that are not ours, and the answers they get."""
