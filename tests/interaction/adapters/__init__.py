"""Servers of other classes, to which roundtrip is attached."""
