"""Replay of recorded calls on the current code (`roundtrip check`, `trace fork`) and as tests (`trace to-test`)."""
