"""The client of `roundtrip call`, and the driver that the other commands and the testing kit use."""
