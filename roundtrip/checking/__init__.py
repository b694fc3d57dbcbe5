"""Recorded calls against the code as it is now: what it would ask again, and where it takes another way."""
