"""Legs: the request, the runner that serves a leg of it, and what authors' functions receive."""
