"""The algorithms in plain NumPy and float64, from the papers' formulas alone.

Tests hold this project against them and the test vectors are made by them, so nothing here imports
TensorFlow or this project.
"""

from oracle.algorithms import (
  SHAPES as SHAPES,
  SIZES as SIZES,
  AdaBest as AdaBest,
  Adaptive as Adaptive,
  FedAvg as FedAvg,
  FedDyn as FedDyn,
  FedProx as FedProx,
  Scaffold as Scaffold,
  ScaffoldM as ScaffoldM,
  Sgd as Sgd,
  UnbalancedAdaBest as UnbalancedAdaBest,
  gradient as gradient,
  pack as pack,
  unpack as unpack,
)
