"""FastMCP's own tests, on servers with `install`."""
