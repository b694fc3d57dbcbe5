"""`roundtrip audit`: attacks any multi-round MCP server, only through the protocol, and reports on each clause."""
