"""Stores beside a run what its model needs to predict, and reads it without the code that made it.

The folder `model` of a run has

  model.json          names, shapes and dtypes of the weights and the inputs, and a description
  forward.pb          the predictions as a graph, a function of the weights and a batch of inputs
  constants.npz       the tensors that this graph uses besides the weights
  model.keras         a Keras model with weights of zeros, if the model has one that can be saved
  preparation.json    the preparation of raw inputs, and the module that reads it, if there is one
  preparation.py

It has neither weights, which are in the run's checkpoint, nor data.
"""

import dataclasses
import inspect
import json
import os
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive._utils import error_text, graph_functions, private_apis, temporary_folders
from tff_adaptive.models import model as model_lib, moving_statistics, weights as weights_lib

FOLDER = 'model'  # In a run's folder.
PREPARATION = ('preparation.json', 'preparation.py')
_FORMAT = 1
_DESCRIPTION = 'model.json'
_GRAPH = 'forward.pb'
_CONSTANTS = 'constants.npz'
_KERAS = 'model.keras'
# Ops through which scores or probabilities pass unchanged.
_PASSING = ('Identity', 'Reshape', 'Squeeze', 'ExpandDims', 'Cast', 'StridedSlice')
_CALLS = ('PartitionedCall', 'StatefulPartitionedCall')
_PROBABILITIES = ('Softmax', 'Sigmoid')


class StoredModel:
  """A model that was read from a folder in which `store_model` wrote it.

  It has what `models.save` needs of a `Model`.

  Attributes:
    description: What `store_model` was given as the description.
    weight_names: The names of the trainable weights, in order.
    initial_weights: Zeros in the shapes and dtypes of the trainable weights, and ().
    input_spec: The spec of a batch of inputs, as `x`.
    keras_refusal: Why there is no Keras model; '' if there is one.
  """

  def __init__(self, folder: str, values: Mapping[str, Any]):
    """Creates the model from the contents of the folder's model.json."""
    self._folder = folder
    self.description: Mapping[str, Any] = values['description']
    self.weight_names = tuple(weight['name'] for weight in values['weights'])
    zeros = tuple(np.zeros(w['shape'], w['dtype']) for w in values['weights'])
    self.initial_weights = (zeros, ())
    x = values['x']
    self.input_spec = {'x': tf.TensorSpec(x['shape'], x['dtype'], 'x')}
    self.keras_refusal: str = values['keras_refusal']
    self._inputs: list[str] = values['graph_inputs']
    self._output: str = values['graph_output']
    with open(os.path.join(folder, _GRAPH), 'rb') as file:
      self._graph = tf.compat.v1.GraphDef.FromString(file.read())
    with np.load(os.path.join(folder, _CONSTANTS)) as arrays:
      self._constants = {name: arrays[name] for name in arrays.files}
    self._predict = self._imported()

  def forward(
    self, weights: Sequence[Any], x: Any, training: bool = False, seed: Any = None
  ) -> Any:
    """Returns the predictions for a batch, without dropout; see `Model.forward`.

    Args:
      weights: The trainable weights, in order.
      x: A batch of inputs.
      training: Must be False.
      seed: Is ignored.

    Raises:
      ValueError: If `training` is True.
    """
    del seed
    if training:
      raise ValueError('a stored model predicts and does not train: give training=False')
    x = tf.cast(x, self.input_spec['x'].dtype)
    constants = [self._constants[name] for name in self._inputs if name in self._constants]
    return self._predict(*map(tf.convert_to_tensor, (*weights, x, *constants)))

  def to_keras(self, weights: Sequence[Any]) -> Any:
    """Returns the Keras model with the given trainable weights, not compiled.

    Raises:
      ValueError: If there is none, or Keras cannot load it because it has layers of one's own.
    """
    if self.keras_refusal:
      raise ValueError(self.keras_refusal)
    try:
      keras = tf.keras.models.load_model(os.path.join(self._folder, _KERAS), compile=False)
    except Exception as error:  # Keras raises many classes for layers that it does not know.
      raise ValueError(f'Keras cannot load it: {error_text.in_brief(error)}') from None
    variables, _ = moving_statistics.split(keras, len(weights))
    for variable, value in zip(variables, weights, strict=True):
      variable.assign(np.asarray(value))
    x = self._example()
    expected = self.forward(tuple(map(tf.convert_to_tensor, weights)), x)
    if not np.allclose(keras(x, training=False), expected, rtol=1e-3, atol=1e-5):
      raise ValueError('as Keras loads it, it predicts otherwise than the run did')
    return keras

  @property
  def has_keras(self) -> bool:
    """Whether there is a Keras model, which may have layers that Keras does not know here."""
    return not self.keras_refusal

  def copy_preparation(self, folder: str) -> None:
    """Copies the preparation of raw inputs, if there is one, to a folder."""
    for name in PREPARATION:
      path = os.path.join(self._folder, name)
      if os.path.exists(path):
        shutil.copy(path, os.path.join(folder, name))

  def _imported(self) -> Any:
    """Returns the stored graph as a function of its inputs."""
    graph_functions.name_apart(self._graph)
    # Unlike `tf.function`, this makes the functions of the graph known where it is called.
    wrapped = tf.compat.v1.wrap_function(
      lambda: tf.graph_util.import_graph_def(self._graph, name=''), []
    )
    inputs = [wrapped.graph.get_tensor_by_name(name) for name in self._inputs]
    return wrapped.prune(inputs, wrapped.graph.get_tensor_by_name(self._output))

  def _example(self) -> tf.Tensor:
    """Returns a batch of two inputs: normal draws, or zeros if inputs are whole numbers."""
    spec = self.input_spec['x']
    shape = [2, *(size or 8 for size in spec.shape[1:])]
    values = np.zeros(shape)
    if spec.dtype.is_floating:
      values = np.random.default_rng(0).normal(size=shape)
    return tf.constant(values.astype(spec.dtype.as_numpy_dtype))


def store_model(
  model: model_lib.Model,
  folder: str,
  description: Mapping[str, Any],
  preparation: Any = None,
) -> None:
  """Writes what a model needs to predict to an existing, empty folder.

  Args:
    model: The model.
    folder: The folder.
    description: Anything that JSON can hold, such as the name of the task.
    preparation: The preparation of raw inputs, an object with `save(path)` whose module can be
      imported alone. If it is a dataclass with a field `output` that is None, this field will say
      whether predictions are 'logits', 'probabilities' or 'numbers'.

  Raises:
    ValueError: If the predictions are not one tensor, or use a variable or a table.
    OSError: If the folder cannot be written to.
  """
  concrete = _traced(model)
  graph = concrete.graph.as_graph_def()
  captures = [(name.name, tensor) for tensor, name in concrete.graph.captures]
  weights = model.initial_weights[0]
  # The weights and the batch; the inputs of the graph that follow are captured tensors.
  num_arguments = len(weights) + 1
  x = model.input_spec['x']
  values = {
    'format': _FORMAT,
    'description': dict(description),
    'weights': [
      {'name': name, 'shape': list(np.shape(weight)), 'dtype': np.asarray(weight).dtype.name}
      for name, weight in zip(weights_lib.weight_names(model), weights)
    ],
    'x': {'shape': list(x.shape), 'dtype': x.dtype.name},
    'graph_inputs': [tensor.name for tensor in concrete.inputs[:num_arguments]]
    + [name for name, _ in captures],
    'graph_output': concrete.outputs[0].name,
    'keras_refusal': _write_keras(model, os.path.join(folder, _KERAS)),
  }
  with open(os.path.join(folder, _GRAPH), 'wb') as file:
    file.write(graph.SerializeToString(deterministic=True))
  constants = {name: tensor.numpy() for name, tensor in captures}
  np.savez(os.path.join(folder, _CONSTANTS), **constants)
  if preparation is not None:
    kind = output_kind(graph, concrete.outputs[0].op.name)
    _with_output(preparation, kind).save(os.path.join(folder, PREPARATION[0]))
    shutil.copy(inspect.getfile(type(preparation)), os.path.join(folder, PREPARATION[1]))
  with open(os.path.join(folder, _DESCRIPTION), 'w', encoding='utf-8') as file:
    json.dump(values, file, indent=1)


def load_stored_model(folder: str) -> StoredModel:
  """Reads a model from a folder that `store_model` has written.

  Raises:
    FileNotFoundError: If the folder has no stored model.
    ValueError: If a file cannot be read, or has the format of another version.
  """
  path = os.path.join(folder, _DESCRIPTION)
  with open(path, encoding='utf-8') as file:
    text = file.read()
  try:
    values = json.loads(text)
    if values.get('format') != _FORMAT:
      raise ValueError(f'its format is {values.get("format")!r}, this version reads {_FORMAT}')
    return StoredModel(folder, values)
  except Exception as error:  # On damaged bytes the decoders raise a dozen unrelated classes.
    reason = error_text.in_brief(error)
    raise ValueError(f'the stored model {folder} cannot be read: {reason}') from None


def output_kind(graph: Any, output: str) -> str:
  """Returns 'probabilities' if a graph's output comes from a softmax or sigmoid, else 'logits'.

  Args:
    graph: A GraphDef.
    output: The name of the node that is the output.
  """
  functions = {function.signature.name: function for function in graph.library.function}
  nodes = graph.node
  name = output
  while True:
    by_name = {node.name: node for node in nodes}
    node = by_name.get(name)
    if node is None:  # An argument.
      return 'logits'
    if node.op in _PROBABILITIES:
      return 'probabilities'
    if node.op in _CALLS:
      function = functions[node.attr['f'].func.name]
      nodes = function.node_def
      # The models here have one output, so the first returned value leads to it.
      name = function.ret[function.signature.output_arg[0].name].partition(':')[0]
    elif node.op in _PASSING:
      name = node.input[0].partition(':')[0]
    else:
      return 'logits'


def _traced(model: model_lib.Model) -> Any:
  """Returns the concrete function (weights, x) -> predictions."""
  specs = tuple(
    tf.TensorSpec(np.shape(weight), np.asarray(weight).dtype) for weight in model.initial_weights[0]
  )

  def forward(weights: Any, x: Any) -> Any:
    return model.forward(weights, x, False, None)

  signature = (specs, model.input_spec['x'])
  try:
    concrete = _concrete(forward, signature, autograph=False)
  except Exception:  # A function of a user's may have Python's `if` on a tensor. This takes longer.
    concrete = _concrete(forward, signature, autograph=True)
  if not isinstance(concrete.structured_outputs, tf.Tensor | tf.TensorSpec):
    raise ValueError('its predictions are not one tensor')
  is_constant = map(private_apis.is_eager_constant, concrete.captured_inputs)
  if not all(is_constant):
    raise ValueError('its predictions use a variable or a table, besides the weights')
  return concrete


def _concrete(function: Any, signature: Any, *, autograph: bool) -> Any:
  traced = tf.function(function, input_signature=signature, autograph=autograph)
  return traced.get_concrete_function()


def _write_keras(model: Any, path: str) -> str:
  """Writes the Keras model with weights of zeros. Returns '', or why there is none."""
  to_keras = getattr(model, 'to_keras', None)
  if to_keras is None:
    return 'the model is not a Keras model'
  zeros = [np.zeros_like(weight) for weight in model.initial_weights[0]]
  with temporary_folders.folder('tff-adaptive-keras-') as temporary:
    large = os.path.join(temporary, _KERAS)
    try:
      to_keras(zeros).save(large)
    except OSError:
      raise
    except Exception as error:  # Layers of one's own raise any error if they have no config.
      return f'Keras cannot save it: {error_text.in_brief(error)}'
    _compress(large, path)
  return ''


def _compress(source: str, path: str) -> None:
  """Copies a zip archive, compressed, so that zeros take no room."""
  with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as new:
    for name in old.namelist():
      new.writestr(name, old.read(name))


def _with_output(preparation: Any, kind: str) -> Any:
  """Returns the preparation with its `output`, if it has such a field and no value in it."""
  if not dataclasses.is_dataclass(preparation) or getattr(preparation, 'output', '') is not None:
    return preparation
  if getattr(preparation, 'is_numbers', False):
    kind = 'numbers'
  return dataclasses.replace(preparation, output=kind)  # type: ignore[type-var]
