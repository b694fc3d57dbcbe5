"""`roundtrip audit`: attacks on any multi-round MCP server, using only the protocol, and a report by clause."""
