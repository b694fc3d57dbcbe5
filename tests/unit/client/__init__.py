"""The pieces of the terminal client."""
