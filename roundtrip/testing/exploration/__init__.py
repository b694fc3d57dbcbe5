"""Every path through the questions of a tool."""
