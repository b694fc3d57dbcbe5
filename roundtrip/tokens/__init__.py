"""Tokens: the signed journal, its binding to a request and a caller, and the tickets for pages."""
