"""Pages of `roundtrip ui`. They show which calls wait or have failed in a fleet, why, and what an operator can do."""
