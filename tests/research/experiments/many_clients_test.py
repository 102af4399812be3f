"""The command trains, and says what it measured; the digest is that of the run."""

import json

from research.experiments import many_clients


def test_a_small_run_prints_a_line_of_json(graph, capsys, monkeypatch):
  import tensorflow_federated as tff

  monkeypatch.setattr(many_clients, '_set_context', lambda: None)
  arguments = ['--registered=1000000', '--clients_per_round=3', '--rounds=2', '--features=4']
  digests = []
  with tff.framework.get_context_stack().install(graph):
    for seed in (0, 0, 1):
      flags = [*arguments, '--algorithm=ada_best', f'--seed={seed}']
      assert many_clients.main(['many_clients.py', *flags]) == 0
      record = json.loads(capsys.readouterr().out)
      assert record['clients_per_second'] > 0
      digests.append(record['digest'])
  assert digests[0] == digests[1] != digests[2]


def test_what_killed_workers_took_counts(monkeypatch):
  seconds = {'trainer': 1.0, 'worker': 5.0}
  monkeypatch.setattr(many_clients, '_processes', lambda: list(seconds))
  monkeypatch.setattr(many_clients, '_processor_seconds', seconds.get)
  watch = many_clients.Watch(0)
  watch.round_end({})
  seconds |= {'trainer': 2.0, 'worker': 0.0}  # It ends while it is asked.
  watch.round_end({})
  del seconds['worker']
  seconds |= {'trainer': 3.0, 'another worker': 0.5}
  watch.round_end({})
  assert watch.processor_seconds == [6.0, 7.0, 8.5]


def test_one_round_is_refused_before_it_is_trained(monkeypatch, capsys):
  monkeypatch.setattr(many_clients, '_train', None)
  assert many_clients.main(['many_clients.py', '--rounds=1']) == 2
  error = capsys.readouterr().err
  assert '--rounds=1' in error
  assert error.count('\n') == 1
