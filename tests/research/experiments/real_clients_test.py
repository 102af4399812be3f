"""The runs of the experiment on clients as they are."""

import pytest

from research.experiments import frame, real_clients
from tff_adaptive import costs, population, registry

COMMAND = ['real_clients.py', '--tasks=digits', '--seeds=0,1', '--rounds=7']


@pytest.fixture
def found(tmp_path, monkeypatch):
  """The runs by folder; none is trained."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(frame, 'train_all', lambda jobs, *_: 130)
  assert real_clients.main([*COMMAND, '--output_dir=out']) == 130  # Stopped while tuning.
  monkeypatch.setattr(
    frame, 'best', lambda folder, _: {'client_learning_rate': 0.1 + ('yogi' in folder)}
  )
  return real_clients._jobs()


def test_rates_are_chosen_with_ideal_clients_a_seed_that_does_not_count_and_no_test_data(found):
  jobs = real_clients._tuning_jobs()
  assert {tuple(folder.split('/')[1:3]) for folder in jobs} == {('tuning', 'digits')}
  assert len(jobs) == 10
  runs = [run for of_pair in jobs.values() for run in of_pair]
  assert {(s.what.seed, s.training.rounds, s.what.task_options['validation']) for s in runs} == {
    (100, 100, 'clients')
  }
  own = {'dropout_rate': 0.0, 'availability': 'always', 'round_deadline': None}
  for run in runs:
    assert {name: run.flat().get(name, value) for name, value in own.items()} == own
  assert len(jobs['out/tuning/digits/fed_avg_sgd']) == 3
  assert len(jobs['out/tuning/digits/fed_avg_yogi']) == 9
  assert {s.flat()['beta'] for s in jobs['out/tuning/digits/ada_best_sgd']} == {0.6, 0.96}
  for folder, of_pair in found.items():
    assert {s.rates.client_learning_rate for s in of_pair} == {1.1 if 'yogi' in folder else 0.1}
    assert [s.what.seed for s in of_pair] == sorted(s.what.seed for s in of_pair)


def test_every_algorithm_meets_every_server_in_every_scenario(found):
  assert len(found) == 5 * 2  # Scenarios and servers.
  for folder, jobs in found.items():
    server = folder.split('/')[-1]
    plain = {'sgd': 'fed_avg', 'yogi': 'fed_yogi'}[server]
    names = [plain, 'fed_prox', 'scaffold', 'fed_dyn', 'ada_best']
    assert {(s.what.algorithm, s.what.seed) for s in jobs} == {
      (n, i) for n in names for i in (0, 1)
    }
    assert {s.what.server_optimizer for s in jobs} == {server}
    assert {s.training.rounds for s in jobs} == {7}
    assert len({s.output.output_dir for s in jobs}) == len(jobs) == 10


def test_scenarios_differ_in_what_they_say_and_in_nothing_else(found):
  by_scenario = {folder.split('/')[2]: jobs[0].flat() for folder, jobs in found.items()}
  ideal = by_scenario.pop('ideal')
  assert ideal['speed_sigma'] == 1.0
  differing = {
    name: {k: v for k, v in flat.items() if v != ideal[k] and k != 'output_dir'}
    for name, flat in by_scenario.items()
  }
  assert differing == {
    'dropout': {'dropout_rate': 0.3},
    'diurnal': {
      'availability': 'diurnal',
      'availability_option': ['unit=rounds', 'period=50', 'share=0.3'],
    },
    'drop': {'round_deadline': 15.0},
    'partial': {'round_deadline': 15.0, 'stragglers': 'partial'},
  }


@pytest.mark.parametrize(
  'task, steps, size', [('digits', 5, 89_610), ('mnist', 65, 89_610), ('emnist', 5, 199_210)]
)
def test_about_two_thirds_of_the_clients_meet_the_deadline(task, steps, size):
  chosen = real_clients.of.TASKS[task]
  speed = population.Speed(chosen.seconds_per_step, 10.0, 2.0, 1.0, 0.5)
  down, up = costs.CostModel(registry.Counts(), size, 45).bytes_of_client
  times = speed.times([str(i) for i in range(4000)], 0, down, up)
  in_time = times.download + steps * times.step + times.upload <= chosen.deadline
  assert 0.6 < in_time.mean() < 0.72
