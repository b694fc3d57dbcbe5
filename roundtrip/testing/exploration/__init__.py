"""Exploration: every path through a tool's questions."""
