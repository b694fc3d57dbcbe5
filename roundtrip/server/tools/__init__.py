"""Tools: what one is made of, and how it is called."""
