"""Rounds of federated averaging in other toolkits, each run by a Python that has it.

Nothing here imports TensorFlow or this project's packages, but for the workloads' data: the
Python that runs it is that of a peer's own environment (`scripts/env/setup_peers.sh`).
"""
