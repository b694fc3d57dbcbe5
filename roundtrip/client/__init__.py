"""The `roundtrip call` client, and the call driver that other commands and the testing kit share."""
