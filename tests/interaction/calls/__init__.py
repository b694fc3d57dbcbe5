"""`roundtrip call`, used by a person and by scripts, against servers of this library and of others."""
