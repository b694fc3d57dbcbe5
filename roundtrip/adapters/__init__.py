"""Adapters: roundtrip on servers of other classes, FastMCP's and the SDK's."""
