"""TFF's private mean, with a state that a checkpoint can hold."""

from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp


class _State(NamedTuple):
  """What lasts from round to round; names as TFF's, by which `algorithms` knows noise.

  Attributes:
    query_state: The state of the query.
    agg_state: The state of the sum.
  """

  query_state: Any
  agg_state: Any


class PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """`tff.aggregators.DifferentiallyPrivateFactory` of a sum divided by the clients of a cohort.

  Its state lacks the last round's event, a structure of texts; `aggregation.accounting` counts.
  What grows in it from round to round, a tree's nodes, is empty at first.
  """

  def __init__(self, query: tfp.SumAggregationDPQuery, clients_per_round: int) -> None:
    """Creates the factory of a query that clips and adds noise, for cohorts of one size."""
    self._sum, self._query = query, tfp.NormalizedQuery(query, float(clients_per_round))

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """The process, for values of a type."""
    process = tff.aggregators.DifferentiallyPrivateFactory(self._query).create(value_type)
    specs = tff.types.type_to_tf_tensor_specs(value_type)

    @tff.tensorflow.computation
    def event() -> Any:
      state = self._query.initial_global_state()
      sample = self._query.initial_sample_state(specs)
      return self._query.get_noised_result(sample, state)[2].to_named_tuple()

    whole_type = process.initialize.type_signature.result
    query_type = whole_type.member.query_state

    @tff.tensorflow.computation(query_type)
    def emptied(state: Any) -> Any:
      return tf.nest.map_structure(lambda leaf: leaf[:0] if _grows(leaf) else leaf, state)

    @tff.tensorflow.computation(query_type)
    def begun(state: Any) -> Any:
      if not any(map(_grows, tf.nest.flatten(state))):
        return state
      tree = state.numerator_state  # With its own seed: this process may go on with another's run.
      is_first = tf.equal(tf.size(tree.tree_state.level_buffer_idx), 0)
      tree = tf.cond(is_first, lambda: self._sum.reset_state(None, tree), lambda: tree)
      return state._replace(numerator_state=tree)

    @tff.federated_computation
    def initialize() -> Any:
      whole = process.initialize()
      return tff.federated_zip(
        _State(tff.federated_map(emptied, whole.query_state), whole.agg_state)
      )

    @tff.federated_computation(
      initialize.type_signature.result, tff.types.FederatedType(value_type, tff.CLIENTS)
    )
    def next_fn(state: Any, value: Any) -> tff.templates.MeasuredProcessOutput:
      python_container = whole_type.member.python_container
      whole = python_container(
        tff.federated_map(begun, state.query_state),
        state.agg_state,
        tff.federated_eval(event, tff.SERVER),
        tff.federated_value(False, tff.SERVER),
      )
      output = process.next(tff.federated_zip(whole), value)
      after = _State(output.state.query_state, output.state.agg_state)
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(after), output.result, output.measurements
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _grows(leaf: tf.Tensor) -> bool:
  return bool(leaf.shape.rank) and leaf.shape[0] is None
