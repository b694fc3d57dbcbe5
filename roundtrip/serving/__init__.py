"""`roundtrip serve`: HTTP serving with one or more processes."""
