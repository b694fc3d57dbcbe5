"""Exploration, which plays every path through a tool's questions."""
