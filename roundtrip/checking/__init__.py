"""`roundtrip check` and `roundtrip trace to-test`: play recorded calls on the present code, or write them as tests."""
