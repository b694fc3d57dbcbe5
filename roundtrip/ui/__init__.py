"""Pages of `roundtrip ui`: which calls wait or failed in a fleet, why, and what an operator can do."""
