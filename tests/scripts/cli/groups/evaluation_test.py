"""Flags of held-out clients and evaluation by client; who is evaluated on what."""

import collections

import pytest

import tff_adaptive_tasks as tasks
from scripts.cli import flags, resolve as resolve_lib
from tff_adaptive.training import personalization

EVERY = '--rounds_per_client_evaluation=5'


def resolve(*arguments):
  return resolve_lib.resolve(flags.parse(['train.py', *arguments]))


@pytest.mark.parametrize(
  'arguments, error',
  [
    (['--heldout_clients=1'], r'--heldout_clients must be in \[0, 1\), found 1'),
    (['--heldout_examples=-0.1'], r'--heldout_examples must be in \[0, 1\)'),
    (['--rounds_per_client_evaluation=0'], 'must be at least 1, found 0: give 1 or more'),
    (['--client_evaluation_clients=10'], 'is for --rounds_per_client_evaluation: give it too'),
    (['--personalization_epochs=1'], 'is for --rounds_per_client_evaluation: give it too'),
    ([EVERY, '--personalization_epochs=1'], 'wants examples that fine-tuning has not seen'),
  ],
)
def test_what_does_not_go_together_is_refused_in_one_line(arguments, error):
  with pytest.raises(ValueError, match=error) as caught:
    resolve(*arguments)
  assert '\n' not in str(caught.value)


def test_a_task_trains_on_what_is_not_held_out():
  task = tasks.load('digits', seed=0)
  plain, parts = resolve_lib.resolve().evaluation.split(task, 0)
  assert plain is task
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
