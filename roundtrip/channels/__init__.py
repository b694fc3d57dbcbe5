"""Channels for users whose client cannot show forms: pages, links and the model."""
