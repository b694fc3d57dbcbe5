"""The tests of the SDK, run with `roundtrip.Server` in the place of its `MCPServer`."""
