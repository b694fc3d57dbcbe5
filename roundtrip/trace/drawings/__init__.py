"""Drawings of the call state machine and of tool dependencies, as Mermaid, DOT or text."""
