"""Exactly once: the ledger's claim on a body, and what it remembers."""
