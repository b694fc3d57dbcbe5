"""Throughput with several processes, and the memory that waiting calls need: `python -m benchmarks.fleet`."""
