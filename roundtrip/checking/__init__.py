"""Replay of recorded calls on the current code (`roundtrip check`, `trace fork`), or as tests (`trace to-test`)."""
