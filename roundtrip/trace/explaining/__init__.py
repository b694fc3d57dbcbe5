"""Describe recorded calls: outcomes, questions asked again, failures, differences and sequences."""
