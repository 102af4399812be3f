"""Flags of held-out clients and evaluation by client; who is evaluated on what."""

import collections

import tff_adaptive_tasks as tasks
from scripts.cli import build as build_lib, resolve as resolve_lib
from tff_adaptive.training import personalization


def test_a_task_trains_and_fine_tunes_on_what_is_not_held_out(monkeypatch):
  task = tasks.load('digits', seed=0)
  none = resolve_lib.resolve()
  plain, parts = none.evaluation.split(task, 0)
  assert plain.train is task.train
  model = task.build_model(0)
  assert build_lib._client_evaluation(none, plain, model, parts) is None

  settings = resolve_lib.resolve(
    heldout_clients=0.1,
    heldout_examples=0.25,
    rounds_per_client_evaluation=5,
    client_evaluation_clients=4,
    personalization_epochs=2,
    max_examples_per_client=17,
  )
  held, parts = settings.evaluation.split(task, 0)
  assert held.train is parts.train
  assert (len(held.train), len(parts.unseen)) == (54, 6)
  sizes = collections.Counter()
  build = personalization.build_personalization

  def counted(*arguments, **options):
    personalize = build(*arguments, **options)

    def count(weights, data, client, rounds):
      sizes[len(data['y'])] += 1
      return personalize(weights, data, client, rounds)

    return count

  monkeypatch.setattr(personalization, 'build_personalization', counted)
  evaluation = build_lib._client_evaluation(settings, held, model, parts)
  assert [evaluation.is_due(number, 99) for number in (5, 7, 10)] == [True, False, True]
  state = type('State', (), {'global_model_weights': model.initial_weights[0]})()
  report = evaluation.evaluate(state, 0)
  lines = [line.split(',') for line in report.table.splitlines()]
  assert [line[0] for line in lines[1:]] == ['train'] * 4 + ['heldout'] * 4 + ['unseen'] * 4
  for group, client_id, examples, *_ in lines[1:]:
    total = task.train.num_examples(client_id)
    assert int(examples) == (min(total - total // 4, 17) if group == 'train' else total // 4)
  assert sizes == {17: 8}  # No more than it trains on, and each has more.
  # After an epoch on a client's other examples its held-out loss is lower, on the average.
  for group in ('heldout', 'unseen'):
    before = report.columns[f'clients_{group}_loss_mean']
    assert report.columns[f'clients_{group}_personalized_loss_mean'] < before


def test_clients_with_test_data_are_a_group():
  settings = resolve_lib.resolve(task='synthetic', rounds_per_client_evaluation=5)
  task, parts = settings.evaluation.split(tasks.load('synthetic', seed=1), 0)
  evaluation = build_lib._client_evaluation(settings, task, task.build_model(0), parts)
  assert 'test' in evaluation._groups
