"""Legs: the request, the runner that serves it, and the context that author functions receive."""
