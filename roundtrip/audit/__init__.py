"""`roundtrip audit`: attacks a multi-round MCP server through the protocol, and reports which clauses it keeps."""
