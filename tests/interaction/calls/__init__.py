"""`roundtrip call` as a person and as a script use it, against servers that are ours and that are not."""
