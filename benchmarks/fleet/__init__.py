"""Throughput of several processes, and the memory of waiting calls: `python -m benchmarks.fleet`."""
