"""Serving over HTTP with one or several processes: what `roundtrip serve` does."""
