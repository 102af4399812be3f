"""The command trains, and says what it measured; the digest is that of the run."""

import json

from scripts.experiments import many_clients


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
