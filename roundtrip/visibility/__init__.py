"""Visibility: which tools, prompts and resources exist for a request, and the news that a list changed."""
