"""What the optimizers refuse, and in which words."""

import collections

import pytest
import tensorflow as tf

from tff_adaptive import optimizers, registry
from tff_adaptive.registry import entries

# TFF's own SGD, for clients, checks by itself.
OWN = [*registry.SERVER_OPTIMIZERS.values(), *list(registry.CLIENT_OPTIMIZERS.values())[1:]]


@pytest.mark.parametrize('entry', OWN, ids=lambda entry: entry.name)
def test_each_number_is_checked_as_the_registry_says(entry):
  build = entries.resolve(entry.build)
  for name in ('learning_rate', *(h.name for h in entry.hyperparameters if h.kind is float)):
    for bad, kind in ((-0.1, ValueError), (float('nan'), ValueError), ('0.1', TypeError)):
      with pytest.raises(kind, match=f'^{name} must be .*, found {bad!r}: '):
        build(**{'learning_rate': 0.1, name: bad})
  names = {h.name for h in entry.hyperparameters} & {'beta1', 'momentum'}
  optimizer = build(**{'learning_rate': 0.1, **dict.fromkeys(names, 0)})
  x = tf.ones([2, 2])
  optimizer.next(optimizer.initialize(tf.TensorSpec([2, 2])), x, x)  # A step without momentum.


def test_other_weights_and_gradients_and_an_unknown_hyperparameter_are_refused():
  for build in (optimizers.build_sgdm, optimizers.build_yogi):  # Without slots, and with some.
    with pytest.raises(TypeError, match='must be floating-point tensors, found int32: cast them'):
      build(0.1).initialize(tf.TensorSpec([2], tf.int32))
  optimizer = optimizers.build_yogi(0.1)
  state = optimizer.initialize((tf.TensorSpec([2]),))
  with pytest.raises(ValueError, match='weights and gradients'):
    optimizer.next(state, (tf.ones([2]),), (tf.ones([3]),))
  with pytest.raises(KeyError, match="no hyperparameter 'beta_1': there are learning_rate, beta1"):
    optimizer.set_hparams(state, collections.OrderedDict(beta_1=0.5))
