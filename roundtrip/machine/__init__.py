"""The state machines, one call's state, and its journal."""
