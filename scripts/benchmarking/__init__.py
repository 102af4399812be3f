"""What `scripts/benchmark.py` measures: the works, and the ways to do a round of each."""
