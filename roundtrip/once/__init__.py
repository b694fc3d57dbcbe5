"""Exactly-once calls: ledger claims, and the results and values that the ledger keeps."""
