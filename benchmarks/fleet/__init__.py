"""What more processes bring, and what calls that await input cost a process: `python -m benchmarks.fleet`."""
