"""Benchmarks, peers, experiments and fault tools: `python -m research.NAME`. Not installed."""
