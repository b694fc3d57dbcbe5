"""Adapters that attach roundtrip to FastMCP's and the SDK's server classes."""
