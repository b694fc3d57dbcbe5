"""Provide the state machines, the state of one call, and its journal."""
