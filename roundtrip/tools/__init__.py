"""Tools: from options to a registered tool, and from a result to a reply."""
