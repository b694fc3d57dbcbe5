"""Hostile clients' attacks, as values. Testing networks and `roundtrip audit` send them."""
