"""Channels to a user whose client shows no forms: links, the model, equal calls."""
