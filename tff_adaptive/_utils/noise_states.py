"""What the states of aggregations with noise are called, in TFF and in `aggregation.queries`."""

from collections.abc import Collection, Iterable

QUERY = 'query_state'  # The state of the query that adds noise. It has the seed of the noise.
SUM = 'agg_state'  # The state of the sum.


def is_noisy(names: Collection[str]) -> bool:
  """Returns whether a state with elements of these names belongs to an aggregation with noise."""
  return {QUERY, SUM} <= set(names)


def have_secret(leaves: Iterable[str]) -> bool:
  """Returns whether a state has the seed of noise, which nobody but its owner may read.

  Args:
    leaves: The names of the state's arrays: the names of its structures, with '/' between them.
  """
  return any(QUERY in leaf.split('/') for leaf in leaves)
