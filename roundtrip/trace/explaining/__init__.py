"""Explain calls: their questions, rejected tokens, failures and differences, and their messages."""
