"""Clients' own models from the command line: evaluated, resumed to the bit, and exported."""

import csv
import json

import numpy as np
import pytest

import tff_adaptive
import tff_adaptive_tasks as tasks
from scripts import export, train
from tests.helpers import fakes
from tff_adaptive import models

FLAGS = (
  '--task=digits',
  '--clients_per_round=3',
  '--seed=1',
  '--heldout_examples=0.2',
  '--client_learning_rate=0.1',
  '--rounds_per_client_evaluation=2',
)


def run(folder, *flags):
  """The folder of a run of train.py, as text."""
  with fakes.no_figures():
    assert train.main(['train.py', *FLAGS, *flags, f'--output_dir={folder}']) == 0
  return str(folder)


def accuracies(folder, number):
  """Each held-out client's accuracies after a round, by id: the global model's and its own."""
  with open(f'{folder}/client_evaluations/round_{number:06d}.csv', newline='') as file:
    lines = [line for line in csv.DictReader(file) if line['group'] == 'heldout']
  return {line['client']: (float(line['accuracy']), float(line['own_accuracy'])) for line in lines}


@pytest.mark.parametrize('algorithm', ['ditto', 'fed_rep'])
@pytest.mark.exhaustive
def test_a_resumed_run_has_the_own_models_of_a_whole_one_to_the_bit(tmp_path, algorithm):
  name = f'--algorithm={algorithm}'
  whole = run(tmp_path / 'whole', name, '--rounds=4')
  parts = run(tmp_path / 'parts', name, '--rounds=2')
  run(parts, name, '--rounds=4')
  accuracies_of = accuracies(whole, 4)
  assert accuracies(parts, 4) == accuracies_of
  assert any(of_client != of_server for of_server, of_client in accuracies_of.values())
  first = accuracies(whole, 0)  # Nobody has taken part.
  assert all(of_client == of_server for of_server, of_client in first.values())
  last = tasks.load_run(whole).rows[-1]
  mean = np.mean([of_client for _, of_client in accuracies_of.values()])
  assert last['clients_heldout_own_accuracy_mean'] == pytest.approx(mean)
  for one, other in zip(tasks.load_run(whole).weights, tasks.load_run(parts).weights):
    np.testing.assert_array_equal(one, other)


@pytest.mark.exhaustive
def test_a_clients_own_model_is_exported(tmp_path, capsys):
  folder = run(tmp_path / 'run', '--algorithm=ditto+sam', '--rounds=3')
  of_client = {client: of_client for client, (_, of_client) in accuracies(folder, 3).items()}
  of_server = {client: of_server for client, (of_server, _) in accuracies(folder, 3).items()}
  # One that has taken part, whose model differs, and one that may not have.
  client = next(c for c in of_client if of_client[c] != of_server[c])
  output = tmp_path / 'exported'
  arguments = [f'--client={client}', '--format=npz', f'--output={output}']
  assert export.main(['export.py', folder, *arguments]) == 0
  record = json.loads((output / 'export.json').read_text())
  assert record['weights'] == f'the model of client {client}'
  run_of_folder = tasks.load_run(folder)
  with np.load(output / 'model.npz') as arrays:
    weights = [arrays[name] for name in record['weight_names']]
  assert not np.array_equal(weights[0], run_of_folder.weights[0])
  whole = tasks.load('digits', seed=1).train  # The run's task has what clients train on.
  parts = tasks.split_clients(whole, seed=1, heldout_examples=0.2)
  evaluate = models.build_evaluation(run_of_folder.task().build_model(1))
  assert evaluate(weights, parts.heldout.load(client))['accuracy'] == pytest.approx(
    of_client[client]
  )
  for flags, words in (
    ([f'--client={client}', '--weights=theta'], 'leave --weights out'),
    (['--client=nobody'], "unknown client 'nobody'"),
  ):
    assert export.main(['export.py', folder, *flags, f'--output={tmp_path / "no"}']) == 2
    assert words in capsys.readouterr().err
  other = run(tmp_path / 'other', '--algorithm=fed_prox', '--rounds=1')
  assert export.main(['export.py', other, f'--client={client}']) == 2
  assert 'have no models of their own' in capsys.readouterr().err


@pytest.mark.parametrize('algorithm', ['ditto', 'apfl'])
@pytest.mark.sample(1)
def test_own_models_are_exported_without_the_task_and_its_data(tmp_path, algorithm, capsys):
  """Of a run from arrays the folder is all that is left; one client never took part."""
  rng = np.random.default_rng(0)
  data = {}
  for client in 'abcdef':
    x = rng.normal(size=(12, 5)).astype(np.float32)
    data[client] = x, (x[:, 0] > 0).astype(int)
  folder = str(tmp_path / 'run')
  tff_adaptive.fit(
    data,
    algorithm,
    rounds=3,
    clients_per_round=4,
    heldout_clients=0.2,
    heldout_examples=0.25,
    rounds_per_client_evaluation=3,
    client_learning_rate=0.3,
    output_dir=folder,
    quiet=True,
  )
  with open(f'{folder}/client_evaluations/round_000003.csv', newline='') as file:
    lines = list(csv.DictReader(file))
  unseen = {line['client'] for line in lines if line['group'] == 'unseen'}
  trained = {line['client'] for line in lines} - unseen
  # The examples of one more are the validation data.
  assert (len(unseen), len(trained)) == (1, 4)
  arrays = {}
  for client in (*trained, *unseen):
    output = tmp_path / f'of_{client}'
    flags = [f'--client={client}', '--format=npz', f'--output={output}']
    assert export.main(['export.py', folder, *flags]) == 0
    assert "none, because the run's task is not here" in capsys.readouterr().out
    with np.load(output / 'model.npz') as weights:
      arrays[client] = [weights[name] for name in weights.files]
  everywhere = tasks.load_run(folder).weights
  for client in unseen:
    for of_unseen, shared in zip(arrays[client], everywhere):
      np.testing.assert_array_equal(of_unseen, shared)
  assert all(not np.array_equal(arrays[client][-1], everywhere[-1]) for client in trained)
  assert export.main(['export.py', folder, '--client=g', f'--output={tmp_path / "g"}']) == 2
  assert 'its task is not here to say whether there is such a client' in capsys.readouterr().err
