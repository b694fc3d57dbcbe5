"""The attacks of hostile clients, as values. Networks of the testing kit and `roundtrip audit` send them."""
