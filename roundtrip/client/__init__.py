"""The client behind `roundtrip call`, and the call driver that other commands and the testing kit share."""
