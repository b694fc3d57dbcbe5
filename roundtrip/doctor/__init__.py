"""`roundtrip doctor`: comparison of a service's instances, and a report on connected clients."""
