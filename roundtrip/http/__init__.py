"""HTTP: live calls that end with their connection, and the fast lane for requests of 2026-07-28."""
