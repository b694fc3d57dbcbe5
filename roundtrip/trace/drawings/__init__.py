"""Draw the state machine of calls, and the dependency graphs of tools, as Mermaid, DOT or text."""
