"""`roundtrip doctor`: compare the instances of a service."""
