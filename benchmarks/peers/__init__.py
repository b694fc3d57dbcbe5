"""The comparison with the SDK and FastMCP: each row runs a real server of each library."""
