"""The server: the one floor that touches the SDK's `MCPServer`, the clock, randomness and the log."""
