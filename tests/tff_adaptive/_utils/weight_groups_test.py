"""Groups of weights by name and kind."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, models, registry
from tff_adaptive._utils import weight_groups
from tff_adaptive.client import Batching, ClientTraining, model_adapters, weight_kinds

WEIGHTS = model_adapters.wrap(small_problem.model()).named_weights()


def selected(value, weights=WEIGHTS):
  mask = weight_groups.select('layers', value, weights)
  return [weight.name for weight, is_selected in zip(weights, mask) if is_selected]


def test_weights_without_names_have_numbers_and_the_last_kernel_begins_the_head():
  assert selected('head') == ['weight_2', 'weight_3']
  assert selected('body') == ['weight_0', 'weight_1']
  assert selected('none') == []
  assert selected('weight_0, weight_3') == ['weight_0', 'weight_3']
  assert selected('weight_*') == [weight.name for weight in WEIGHTS]


def test_normalisations_and_embeddings_are_found_by_their_form():
  ones = np.ones(4, np.float32)
  zeros = np.zeros(4, np.float32)
  table = np.zeros((9, 4), np.float32)
  kernel = np.zeros((4, 3), np.float32)
  weights = weight_kinds.of_arrays([table, ones, zeros, kernel, zeros[:3]], reads_tokens=True)
  assert selected('norm', weights) == ['weight_1', 'weight_2']
  assert selected('embedding', weights) == ['weight_0']
  assert selected('norm,head', weights) == ['weight_1', 'weight_2', 'weight_3', 'weight_4']


def test_keras_models_have_names():
  def build():
    return tf.keras.Sequential(
      [
        tf.keras.layers.Input([5]),
        tf.keras.layers.Dense(4, 'relu'),
        tf.keras.layers.LayerNormalization(),
        tf.keras.layers.Dense(3),
      ]
    )

  wrapped = models.from_keras(
    build, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  )
  weights = model_adapters.wrap(wrapped).named_weights()
  assert selected('head', weights) == ['dense_1/kernel', 'dense_1/bias']
  assert [name.rpartition('/')[2] for name in selected('norm', weights)] == ['gamma', 'beta']
  assert selected('dense/*', weights) == ['dense/kernel', 'dense/bias']
  x = np.ones((2, 5), np.float32)
  features = wrapped.features(wrapped.initial_weights[0], x, False, None)
  last = np.asarray(features) @ wrapped.initial_weights[0][-2] + wrapped.initial_weights[0][-1]
  np.testing.assert_allclose(
    wrapped.forward(wrapped.initial_weights[0], x, False, None), last, rtol=1e-5
  )


@pytest.mark.parametrize(
  ('value', 'words'),
  [
    ('tail', 'layers must be one of head, body, norm, embedding, none, or weights by name'),
    ('weight_7', "layers=weight_7: the model has no weight 'weight_7'; its weights are weight_0"),
    ('norm', "layers=norm: the model has no weight 'norm'"),
  ],
)
def test_a_group_without_weights_is_refused(value, words):
  with pytest.raises(ValueError, match=f'^{words}'):
    weight_groups.select('layers', value, WEIGHTS)


def build(part, model=None, **training):
  return algorithms.build_drift_corrected(
    model or small_problem.model(),
    part,
    client_learning_rate=0.1,
    training=ClientTraining(**{'batching': Batching(4), **training}),
  )


def test_a_part_without_what_it_needs_is_refused():
  with pytest.raises(ValueError, match='all weights of the model stay at the clients'):
    build(corrections.FedPer('head,body'))
  with pytest.raises(ValueError, match='fed_rep needs clients that are given as whole arrays'):
    build(corrections.FedRep(), batching=None)
  with pytest.raises(ValueError, match='fed_ntd changes the loss, which needs the outputs'):
    build(corrections.FedNTD(), small_problem.keras_model, batching=None)
  # Not AutoGraph's "in user code" first.
  with pytest.raises(ValueError, match=r'^VariableModel has no loss at given weights'):
    build(corrections.QFedAvg(), small_problem.keras_model, batching=None)
  with pytest.raises(ValueError, match='the model gives no features'):
    build(corrections.Moon())


def test_weights_that_stay_are_not_counted():
  model = small_problem.model()
  sizes = [int(np.prod(weight.shape)) for weight in WEIGHTS]
  of_body = sum(sizes[:2]) / sum(sizes)
  for name in ('fed_per', 'fed_babu'):
    counts = algorithms.counts(name, model)
    assert (counts.down, counts.up) == pytest.approx((of_body, of_body))
  assert algorithms.counts('fed_lesam', model) == registry.Counts(1, 1, 1, 0)
  assert algorithms.counts('ditto', model).gradients == 2
  assert algorithms.counts('p_fed_me', model, values={'inner_steps': 3}).gradients == 3


def test_none_stands_alone():
  assert weight_groups.check('layers', 'none') == 'none'
  with pytest.raises(ValueError, match='layers=none,head: none goes with no other word'):
    weight_groups.check('layers', 'none,head')
