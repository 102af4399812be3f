"""The folder `model` of a run: written when the run begins, and never a reason not to train."""

import os

import tensorflow as tf

from scripts.cli import stored_model
from tests.helpers import small_problem
from tff_adaptive.training import callbacks


def info(folder, said):
  return callbacks.RunInfo(folder, 0, 1, said.append)


def test_a_resumed_run_writes_the_folder_anew_and_leaves_nothing_else(tmp_path):
  said = []
  folder = str(tmp_path)
  assert stored_model.of_run(folder) is None
  for source in ('first', 'second'):
    description = {'task': 'mine', 'source': source, 'metric': 'loss'}
    callback = stored_model.StoreModel(small_problem.model(), description, None)
    callback.begin(info(folder, said))
    assert os.listdir(folder) == ['model']
    assert stored_model.of_run(folder).description == description
  callback.begin(info(None, said))  # A run that writes nothing.
  assert said == []


def test_a_model_that_cannot_be_stored_is_trained_all_the_same(tmp_path):
  variable = tf.Variable(2.0)
  model = small_problem.model()
  forward = model.forward
  model.forward = lambda weights, x, training, seed: variable * forward(weights, x, training, seed)
  said = []
  stored_model.StoreModel(model, {}, None).begin(info(str(tmp_path), said))
  assert said == [
    'The model is not stored for exports (its predictions use a variable or a table, besides the'
    ' weights): they will need the data.'
  ]
  assert os.listdir(tmp_path) == []
