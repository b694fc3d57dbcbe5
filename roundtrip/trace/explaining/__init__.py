"""Explanations of calls: questions, rejected tokens, failures, differences and messages."""
