"""Redis and PostgreSQL connections: a small pool for each event loop, kept open between uses."""
