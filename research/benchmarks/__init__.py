"""What `research/benchmark.py` measures: the workloads, and the ways to do a round of each."""
