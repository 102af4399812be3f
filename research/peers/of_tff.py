"""TensorFlow Federated: its own algorithms, in float32, and its optimizers, in float64."""

import gc
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated

from research.peers import problem

LEARNING = tensorflow_federated.learning
OPTIMIZERS = LEARNING.optimizers


def _model() -> Any:
  """The file's model."""

  def predicted(weights: Any, x: Any, training: bool) -> Any:
    weight, *bias = weights[0]
    if problem.IS_LOGISTIC:
      return tf.matmul(x, weight) + bias[0]
    return tf.linalg.matvec(x, weight)

  def loss(prediction: Any, y: Any, _: Any = None) -> Any:
    if problem.IS_LOGISTIC:
      each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, prediction)
      return tf.reduce_mean(each)
    return 0.5 * tf.reduce_mean((prediction - y) ** 2)

  x, y = _examples(0)
  initial = tuple(np.float32(one) for one in problem.tensors(problem.START).values())
  return LEARNING.models.FunctionalModel(
    initial_weights=(initial, ()),
    predict_on_batch_fn=tf.function(predicted),
    loss_fn=tf.function(loss),
    input_spec=(tf.TensorSpec([None, x.shape[1]], x.dtype), tf.TensorSpec([None], y.dtype)),
  )


def _examples(number: int) -> tuple[np.ndarray, np.ndarray]:
  x, y = problem.arrays(number)
  if problem.IS_LOGISTIC:
    return x.astype(np.float32), y.astype(np.int32)
  return x.astype(np.float32), y.astype(np.float32)


def _data(client: Any) -> Any:
  batches = tf.data.Dataset.from_tensor_slices(_examples(client['client'])).batch(4)
  return batches.repeat(2).take(client['steps'])


def _rounds(name: str, build: Any) -> Any:
  """The models of an algorithm; for each client rate it is built anew, its state goes on."""
  state = None
  last_rate = None
  seen = []
  for one in problem.rounds(name):
    if one['client_rate'] != last_rate:
      last_rate = one['client_rate']
      process = build(last_rate)
      first = process.initialize()
      if state is None:
        state = first
      elif state.client_work:  # Mime's base optimizer has its rate in its state.
        state.client_work[0]['learning_rate'] = first.client_work[0]['learning_rate']
    state = process.next(state, [_data(client) for client in problem.sent(one)]).state
    seen.append(problem.flat(process.get_model_weights(state).trainable))
  return seen


def _weighting(name: str) -> Any:
  if problem.is_by_examples(name):
    return LEARNING.ClientWeighting.NUM_EXAMPLES
  return LEARNING.ClientWeighting.UNIFORM


def _averaged(name: str) -> Any:
  model = _model()
  options = {'client_weighting': _weighting(name)}
  return _rounds(
    name,
    lambda rate: LEARNING.algorithms.build_weighted_fed_avg(
      model, OPTIMIZERS.build_sgdm(rate), OPTIMIZERS.build_sgdm(1.0), **options
    ),
  )


def _proximal(name: str) -> Any:
  model = _model()
  mu = problem.value(name, 'mu')
  options = {'client_weighting': _weighting(name)}
  return _rounds(
    name,
    lambda rate: LEARNING.algorithms.build_weighted_fed_prox(
      model, mu, OPTIMIZERS.build_sgdm(rate), OPTIMIZERS.build_sgdm(1.0), **options
    ),
  )


def _mime_lite(name: str) -> Any:
  """Its momentum is m <- beta m + g: with a rate of (1 - beta) it is that of the vectors."""
  model = _model()
  beta = problem.value(name, 'base_beta1')
  options = {'client_weighting': _weighting(name)}
  return _rounds(
    name,
    lambda rate: LEARNING.algorithms.build_weighted_mime_lite(
      model, OPTIMIZERS.build_sgdm(rate * (1 - beta), beta), **options
    ),
  )


def _server(name: str, optimizer: Any) -> Any:
  state = optimizer.initialize(tf.TensorSpec(problem.START.shape, tf.float64))

  def step(state: Any, x: Any, d: Any) -> Any:
    return optimizer.next(state, tf.constant(x), tf.constant(d))

  return problem.server(name, step, state)


def _sgdm(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, OPTIMIZERS.build_sgdm(values['rate'], values['momentum']))


def _adagrad(name: str) -> Any:
  values = problem.of_server(name)
  initial_v = values['initial_v']
  return _server(name, OPTIMIZERS.build_adagrad(values['rate'], initial_v, values['tau'] ** 2))


def _adam(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, OPTIMIZERS.build_adam(values['rate'], *problem.betas(name), values['tau']))


def _yogi(name: str) -> Any:
  values = problem.of_server(name)
  others = (values['tau'], values['initial_v'])
  return _server(name, OPTIMIZERS.build_yogi(values['rate'], *problem.betas(name), *others))


def models() -> problem.Models:
  """The models by each algorithm."""
  context = tensorflow_federated.backends.native.create_sync_local_cpp_execution_context
  with tensorflow_federated.framework.get_context_stack().install(context()):
    done = problem.models_by({'fed_avg': _averaged, 'fed_prox': _proximal, 'mime_lite': _mime_lite})
  gc.collect()  # Ends the context's process, which would outlive this one with its output open.
  servers = {'fed_avgm': _sgdm, 'fed_adagrad': _adagrad, 'fed_adam': _adam, 'fed_yogi': _yogi}
  return done | problem.models_by(servers)
