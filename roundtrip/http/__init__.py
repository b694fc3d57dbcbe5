"""HTTP: live calls that end with their connection, and the fast lane for requests in revision 2026-07-28."""
