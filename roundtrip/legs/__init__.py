"""Legs: the request, the runner that serves it, and the context that the author's functions receive."""
