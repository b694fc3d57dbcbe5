"""Attacks on any multi-round MCP server over its protocol alone, and a report clause by clause: `roundtrip audit`."""
