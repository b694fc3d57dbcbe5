"""Stored calls: calls that outlive their request, so that any worker continues them."""
