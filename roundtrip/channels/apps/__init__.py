"""The channel `app`: questions inside the conversation, in hosts with MCP Apps."""
