"""Docket: an engine for stored calls on Redis, and parameters that have its dependencies."""
