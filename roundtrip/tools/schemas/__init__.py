"""Schemas of tools: what authors and docstrings say, made plain for clients, and checks of values."""
