"""What our own clients have in common: `roundtrip call`, `roundtrip check` and the testing kit."""
