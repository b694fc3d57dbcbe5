"""Attach roundtrip to servers of other classes: FastMCP's, and the SDK's `MCPServer` and low-level `Server`."""
