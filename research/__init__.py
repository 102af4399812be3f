"""What measures and attacks the product: benchmarks, peers, the papers' experiments, fault tools.

Nothing here is installed. Commands run from the root of the repository, `python -m research.NAME`.
"""
