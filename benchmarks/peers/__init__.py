"""Comparison with the SDK and FastMCP: each row runs a real server with each library."""
