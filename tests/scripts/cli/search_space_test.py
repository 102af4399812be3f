"""Spaces: each combination once, ranges as written, hyperparameters where an algorithm has them."""

import functools

import pytest

from scripts.cli import records, resolve, search_space
from scripts.cli.search_space import Range, Space


def _labels(axes, given=()):
  return [search_space.label(point) for point in Space(axes, dict(given)).points()]


def test_a_hyperparameter_counts_where_the_registry_has_it_and_the_last_flag_varies_fastest():
  of_both = ['seed=0,tau=1', 'seed=0,tau=2', 'seed=1,tau=1', 'seed=1,tau=2']
  assert _labels({'seed': ['0', '1'], 'tau': ['1', '2']}) == of_both
  axes = {'algorithm': ['fed_avg', 'fed_adam', 'ada_best'], 'tau': ['1', '2'], 'mu': ['3', '4']}
  assert _labels(axes) == [
    'algorithm=fed_avg',
    'algorithm=fed_adam,tau=1',
    'algorithm=fed_adam,tau=2',
    'algorithm=ada_best,mu=3',
    'algorithm=ada_best,mu=4',
  ]
  # AdaBest with Yogi has both.
  both = {'algorithm': 'ada_best', 'server_optimizer': 'yogi'}
  assert len(_labels({'tau': ['1', '2'], 'mu': ['3', '4']}, both)) == 4
  # FedAvg's server optimizer is its own.
  axes = {'algorithm': ['fed_avg', 'scaffold'], 'server_optimizer': ['yogi', 'sgd']}
  assert _labels(axes) == [
    'algorithm=fed_avg',
    'algorithm=scaffold,server_optimizer=yogi',
    'algorithm=scaffold,server_optimizer=sgd',
  ]


def test_what_all_runs_share_is_left_out_where_it_has_no_meaning():
  given = {'tau': 0.5, 'rounds': 3}
  points = Space({'algorithm': ['fed_avg', 'fed_adam', 'diloco', 'scaffold']}, given).grid('x')
  assert [run.server.get('tau') for run in points] == [None, 0.5, None, None]
  assert {run.training.rounds for run in points} == {3}
  labels = ['algorithm=fed_avg', *(f'algorithm=ada_best,tau={tau}' for tau in '12')]
  axes = {'algorithm': ['fed_avg', 'ada_best'], 'tau': ['1', '2']}
  assert _labels(axes, {'server_optimizer': 'yogi'}) == labels  # FedAvg has no Yogi.
  more = Space({}, {'task_option': ['a=1']}).settings({'task_option': 'b=2'})
  assert more.what.task_option == ('a=1', 'b=2')


@pytest.mark.parametrize(
  'axes, given, labels',
  [
    (
      {'cohort': ['uniform', 'power_of_choice'], 'cohort_option': ['candidates=4', 'candidates=8']},
      {},
      [
        'cohort=uniform',
        'cohort=power_of_choice,cohort_option=candidates=4',
        'cohort=power_of_choice,cohort_option=candidates=8',
      ],
    ),
    (  # Options of two rules, each with its own.
      {
        'aggregator': ['mean', 'trimmed_mean', 'krum'],
        'aggregator_option': ['trim=0.2', 'attackers=2'],
      },
      {'client_weighting': 'uniform'},
      [
        'aggregator=mean',
        'aggregator=trimmed_mean,aggregator_option=trim=0.2',
        'aggregator=krum,aggregator_option=attackers=2',
      ],
    ),
    (
      {
        'algorithm': ['fed_avg', 'scaffold+sam'],
        'algorithm_option': ['sam.rho=0.05', 'sam.rho=0.1'],
      },
      {},
      [
        'algorithm=fed_avg',
        'algorithm=scaffold+sam,algorithm_option=sam.rho=0.05',
        'algorithm=scaffold+sam,algorithm_option=sam.rho=0.1',
      ],
    ),
    (
      {'attack': ['label_flip', 'scaling'], 'attack_option': ['classes=10', 'scale=5']},
      {'attackers': 0.2},
      ['attack=label_flip,attack_option=classes=10', 'attack=scaling,attack_option=scale=5'],
    ),
    (
      {
        'client_schedule': ['constant', 'round_decay'],
        'client_schedule_option': ['factor=0.9', 'factor=0.99'],
      },
      {},
      [
        'client_schedule=constant',
        'client_schedule=round_decay,client_schedule_option=factor=0.9',
        'client_schedule=round_decay,client_schedule_option=factor=0.99',
      ],
    ),
    (
      {
        'availability': ['always', 'independent', 'diurnal'],
        'availability_option': ['probability=0.3', 'share=0.4'],
      },
      {},
      [
        'availability=always',
        'availability=independent,availability_option=probability=0.3',
        'availability=diurnal,availability_option=share=0.4',
      ],
    ),
    (
      {'staleness': ['none', 'polynomial'], 'staleness_option': ['a=0.5', 'a=1']},
      {'synchrony': 'buffered', 'concurrency': 20, 'algorithm': 'fed_avg'},
      [
        'staleness=none',
        'staleness=polynomial,staleness_option=a=0.5',
        'staleness=polynomial,staleness_option=a=1',
      ],
    ),
  ],
  ids=[
    'cohort',
    'aggregator',
    'algorithm',
    'attack',
    'schedule',
    'availability',
    'staleness',
  ],
)
def test_an_option_counts_where_its_rule_has_it_and_baselines_run_once(axes, given, labels):
  assert _labels(axes, given) == labels
  assert len(Space(axes, given).grid('x')) == len(labels)


def test_an_option_that_all_runs_share_is_left_out_for_those_without_it():
  given = {'cohort_option': ['candidates=8'], 'rounds': 3}
  points = Space({'cohort': ['uniform', 'power_of_choice']}, given).grid('x')
  assert [run.cohort.cohort_option for run in points] == [(), ('candidates=8',)]
  given = {'algorithm_option': ['share=0.1', 'sam.rho=0.05']}
  points = Space({'algorithm': ['fed_avg+top_k', 'scaffold+sam+top_k', 'fed_avg']}, given).grid('x')
  assert [run.correction.get('share') for run in points] == [0.1, 0.1, None]
  assert [run.correction.get('rho') for run in points] == [None, 0.05, None]


def test_an_option_of_a_part_in_a_file_counts_with_the_name_of_the_part(tmp_path):
  path = tmp_path / 'a.py'
  path.write_text(
    'import dataclasses\nfrom tff_adaptive.corrections import base\n'
    '@dataclasses.dataclass(frozen=True)\nclass Own(base.Correction):\n'
    "  x: float = 1.0\n  name = 'mine'\n"
  )
  options = ['mine.x=2', 'mine.x=3']
  axes = {'algorithm': ['fed_avg', f'scaffold+{path}:Own'], 'algorithm_option': options}
  values = [run.correction.get('x') for run in Space(axes, {}).grid('x')]
  assert values == [None, 2.0, 3.0]


@pytest.mark.parametrize(
  'axes, given, message',
  [
    ({'algorithm': ['fed_avg'], 'tau': ['1']}, {}, 'has no meaning'),
    ({'seed': ['0']}, {'algorithm': 'fed_avg', 'mu': 1.0}, 'has no meaning'),
    ({'task': ['d/o.py:load', 'd_o.py:load']}, {}, 'have the same folder: its name has _ for /'),
    ({'algorithm': ['fed_avg', 'ada_best'], 'mu': ['0.1', '-1']}, None, '--mu must be'),
    ({'algorithm': ['fed_avg'], 'tau': Range(0.1, 1, False, False)}, None, '--tau has no meaning'),
    ({'tau': Range(-1, 1, False, False)}, None, '--tau must be'),
    ({'cohort_option': ['width=2']}, {'cohort': 'uniform'}, "option of uniform 'width'"),
    ({'cohort_option': ['candidates=4']}, {}, '--cohort'),
  ],
)
def test_what_has_no_meaning_folder_or_valid_value_is_refused_before_any_run(axes, given, message):
  space = Space(axes, given or {})
  refuse = space.check if given is None else functools.partial(space.grid, 'x')
  with pytest.raises(ValueError, match=message):
    refuse()


def test_flags_are_read_as_they_are_written():
  assert search_space.read(['seed=0,1'], ['tau=1e-4,0.1,log', 'clients_per_round=2,8']) == {
    'seed': ['0', '1'],
    'tau': Range(1e-4, 0.1, True, False),
    'clients_per_round': Range(2, 8, False, True),
  }


def test_a_comma_without_a_name_after_it_is_of_the_value_of_an_option():
  grids = ['client_optimizer_option=adamw=embedding,head,adamw=head', 'algorithm=fed_avg,scaffold']
  axes = search_space.read(grids, [])
  assert axes['client_optimizer_option'] == ['adamw=embedding,head', 'adamw=head']
  assert axes['algorithm'] == ['fed_avg', 'scaffold']


def test_an_option_counts_for_the_client_optimizers_that_have_it():
  values = ['momentum=0.5', 'momentum=0.8']
  axes = {'client_optimizer': ['sgd', 'sgdm'], 'client_optimizer_option': values}
  assert _labels(axes) == [
    'client_optimizer=sgd',
    'client_optimizer=sgdm,client_optimizer_option=momentum=0.5',
    'client_optimizer=sgdm,client_optimizer_option=momentum=0.8',
  ]


@pytest.mark.parametrize(
  'grids, ranges, message',
  [
    (['zzz=1'], [], '--grid=zzz: train.py has no such flag; see train.py'),
    ([], ['client_rate=0,1'], '--range=client_rate: train.py has no such flag; did you mean'),
    (['tau='], [], '--grid=tau=: write it as'),
    (['cohort_option=candidates=2,'], [], '--grid=cohort_option=candidates=2,: write it as'),
    (['seed=0,0'], [], '--grid=seed=0,0: .* each value once'),
    (['tau=1'], ['tau=0.1,1'], 'each flag once'),
    (['output_dir=x'], [], 'the sweep names the folders itself'),
    ([], ['seed=1,3'], 'give seeds one by one'),
    ([], ['tau=0,1,log'], 'above 0 with log'),
    ([], ['tau=a,1'], 'LOW must be less'),
    ([], ['tau=1,1'], 'LOW must be less'),
    ([], ['tau=1,2,lin'], 'or FLAG=LOW,HIGH,log with'),
    ([], ['tau=1,inf'], 'LOW must be less'),
    ([], ['clients_per_round=1.5,4'], 'whole if the flag is'),
    ([], ['algorithm=1,2'], 'with a numeric flag of train.py'),
  ],
)
def test_what_is_written_otherwise_is_refused(grids, ranges, message):
  with pytest.raises(ValueError, match=message):
    search_space.read(grids, ranges)


def test_draws_lie_in_their_ranges_and_have_what_counts():
  optuna = pytest.importorskip('optuna')
  axes = {
    'mu': ['0.1', '0.2'],
    'momentum': ['0.8', '0.9'],  # Before the optimizer by the alphabet, but drawn after it.
    'server_optimizer': ['sgdm', 'adam'],
    'algorithm': ['fed_avg', 'ada_best'],
    'tau': Range(1e-3, 1e-1, True, False),
    'batch_size': Range(4, 6, False, True),
  }
  space = Space(axes, {})
  space.check()
  study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
  points = [space.draw(study.ask()) for _ in range(60)]
  kinds = set()
  for point in points:
    assert point['batch_size'] in ('4', '5', '6')
    assert ('mu' in point) == (point['algorithm'] == 'ada_best') == ('server_optimizer' in point)
    assert ('momentum' in point) == (point.get('server_optimizer') == 'sgdm')
    assert ('tau' in point) == (point.get('server_optimizer') == 'adam')
    assert 1e-3 <= float(point.get('tau', 1e-2)) <= 1e-1
    kinds.add((point['algorithm'], point.get('server_optimizer')))
  assert kinds == {('fed_avg', None), ('ada_best', 'sgdm'), ('ada_best', 'adam')}
  below = sum(float(point['tau']) < 1e-2 for point in points if 'tau' in point)
  assert 4 < below < 16  # Half of some twenty, by the logarithm: a tenth otherwise.


def test_a_folder_has_the_name_of_an_algorithm_of_ones_own(tmp_path):
  path = tmp_path / 'a.py'
  path.write_text(
    'from tff_adaptive.registry import Algorithm\n'
    "A, B, C = (Algorithm(name, 'T', 'does it') for name in ('mine', 'mine', 'fed_avg'))\n"
  )
  labels = ['algorithm=mine', 'algorithm=C', 'algorithm=fed_avg']  # C has the name of another.
  axis = [f'{path}:A', f'{path}:C', 'fed_avg']
  assert _labels({'algorithm': axis}) == labels
  run = Space({'algorithm': axis}, {}).settings({'algorithm': axis[0]})
  assert resolve.resolve(algorithm=axis[0]).output.output_dir == 'runs/digits_mine'
  assert records.of(run).files['algorithm']['name'] == 'T'
  with pytest.raises(ValueError, match='is not empty'):
    Space({}, {}).settings({}, str(tmp_path))
  with pytest.raises(ValueError, match=r'only the NAME of FILE\.py:NAME'):
    _labels({'algorithm': [f'{path}:A', f'{path}:B']})
