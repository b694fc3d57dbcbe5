"""Visibility: which tools, prompts and resources exist for a request, and notifications about changed lists."""
