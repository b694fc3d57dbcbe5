"""Stored calls: calls that outlive their requests, so that any worker can continue them."""
