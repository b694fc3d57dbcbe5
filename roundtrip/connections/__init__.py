"""Connections to Redis and PostgreSQL: few, kept open, each used on the event loop that opened it."""
