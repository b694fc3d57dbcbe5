"""Provide the pages of `roundtrip ui`: what waits and what failed in a fleet, why, and what an operator can do."""
