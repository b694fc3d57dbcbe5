"""`roundtrip audit`: attacks any multi-round MCP server through the protocol only, and reports on each clause."""
