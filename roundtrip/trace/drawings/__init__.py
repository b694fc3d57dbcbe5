"""Drawings of what roundtrip works with: the machine of every call, and what tools depend on."""
