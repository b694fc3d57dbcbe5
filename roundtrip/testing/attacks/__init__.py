"""Attacks by hostile clients, as values. Testing networks and `roundtrip audit` send these values."""
