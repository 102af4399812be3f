"""What the server optimizers refuse, and in which words."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import optimizers

NAN, INF = float('nan'), float('inf')
ADAPTIVE = [optimizers.build_adagrad, optimizers.build_adam, optimizers.build_yogi]
WITH_BETA2 = ADAPTIVE[1:]
ALL = [optimizers.build_sgdm, *ADAPTIVE]


@pytest.mark.parametrize(
  'builders, option, bad_values, message',
  [
    (ALL, 'learning_rate', [-0.1, NAN, INF], 'finite and at least 0'),
    ([optimizers.build_sgdm], 'momentum', [-0.1, 1.0, NAN], 'in [0, 1)'),
    (ADAPTIVE, 'beta1', [-0.1, 1.0, NAN], 'in [0, 1)'),
    (WITH_BETA2, 'beta2', [-0.1, 1, 1.5, NAN], 'in [0, 1)'),
    (ADAPTIVE, 'tau', [0, -1e-3, NAN, INF], 'finite and above 0'),
    (ADAPTIVE, 'initial_v', [-1e-6, NAN, INF], 'finite and at least 0'),
    ([optimizers.build_lion], 'decay', [-1], 'finite and at least 0'),
  ],
)
def test_a_number_out_of_range_is_refused(builders, option, bad_values, message):
  for build in builders:
    for bad in bad_values:
      for value in bad, tf.constant(float(bad), tf.float64), np.float64(bad):
        with pytest.raises(ValueError) as error:
          build(**{'learning_rate': 0.1, option: value})
        found = float(bad) if tf.is_tensor(value) else value
        assert str(error.value).startswith(f'{option} must be {message}, found {found}: ')


@pytest.mark.parametrize('bad', ['0.1', None, True, [0.1], tf.constant([0.1])])
def test_what_is_no_number_is_refused(bad):
  with pytest.raises(TypeError, match=r'tau must be a number, found '):
    optimizers.build_yogi(0.1, tau=bad)
  for build in optimizers.build_adam, optimizers.build_yogi:
    with pytest.raises(TypeError, match=r'beta2 must be a number, found '):
      build(0.1, beta2=bad)


def test_gradients_of_other_weights_and_an_unknown_hyperparameter_are_refused():
  optimizer = optimizers.build_yogi(0.1)
  state = optimizer.initialize((tf.TensorSpec([2]),))
  with pytest.raises(ValueError, match='weights and gradients'):
    optimizer.next(state, (tf.ones([2]),), (tf.ones([3]),))
  with pytest.raises(KeyError, match="no hyperparameter 'beta_1': there are learning_rate, beta1"):
    optimizer.set_hparams(state, collections.OrderedDict(beta_1=0.5))
