"""Exploration: playing every path through a tool's questions."""
