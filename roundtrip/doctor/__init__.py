"""`roundtrip doctor`: whether the instances of a service fit together."""
