"""Benchmarks: roundtrip beside its peers, interleaved in one process (`python -m benchmarks`)."""
