"""Flags of held-out clients and evaluation by client; who is evaluated on what."""

import collections

import tff_adaptive_tasks as tasks
from scripts.cli import resolve as resolve_lib
from tff_adaptive.training import personalization


def test_a_task_trains_on_what_is_not_held_out():
  task = tasks.load('digits', seed=0)
  plain, parts = resolve_lib.resolve().evaluation.split(task, 0)
  assert plain.train is task.train
  model = task.build_model(0)
  none = resolve_lib.resolve()
  assert none.evaluation.build(none, plain, model, parts) is None

  settings = resolve_lib.resolve(
    heldout_clients=0.1,
    heldout_examples=0.25,
    rounds_per_client_evaluation=5,
    client_evaluation_clients=4,
    personalization_epochs=1,
  )
  held, parts = settings.evaluation.split(task, 0)
  assert held.train is parts.train
  assert len(held.train) == 54
  assert len(parts.unseen) == 6
  evaluation = settings.evaluation.build(settings, held, model, parts)
  state = type('State', (), {'global_model_weights': model.initial_weights[0]})()
  report = evaluation.evaluate(state, 0)
  lines = [line.split(',') for line in report.table.splitlines()]
  assert [line[0] for line in lines[1:]] == ['train'] * 4 + ['heldout'] * 4 + ['unseen'] * 4
  for group, client_id, examples, *_ in lines[1:]:
    total = task.train.num_examples(client_id)
    assert int(examples) == (total - total // 4 if group == 'train' else total // 4)
  # After an epoch on a client's other examples its held-out loss is lower, on the average.
  for group in ('heldout', 'unseen'):
    before = report.columns[f'clients_{group}_loss_mean']
    assert report.columns[f'clients_{group}_personalized_loss_mean'] < before


def test_a_client_fine_tunes_on_no_more_examples_than_it_trains_on(monkeypatch):
  settings = resolve_lib.resolve(
    heldout_clients=0.1,
    heldout_examples=0.25,
    rounds_per_client_evaluation=5,
    personalization_epochs=1,
    max_examples_per_client=7,
  )
  task, parts = settings.evaluation.split(tasks.load('digits', seed=0), 0)
  sizes = collections.Counter()

  def build(*unused_arguments, **unused_options):
    def personalize(weights, data, client, rounds):
      sizes[len(data['y'])] += 1
      return weights

    return personalize

  monkeypatch.setattr(personalization, 'build_personalization', build)
  model = task.build_model(0)
  evaluation = settings.evaluation.build(settings, task, model, parts)
  state = type('State', (), {'global_model_weights': model.initial_weights[0]})()
  report = evaluation.evaluate(state, 0)
  assert sizes == {7: 60}
  held = [line.split(',') for line in report.table.splitlines()[1:]]
  assert {int(examples) for group, _, examples, *_ in held if group == 'train'} == {7}
