"""Facts about the registry: its entries, and those made from a user's own file."""

import dataclasses
import inspect

import pytest

from tff_adaptive import corrections, optimizers, registry, schedules
from tff_adaptive._utils import hyperparameters
from tff_adaptive.optimizers import published
from tff_adaptive.registry import described, entries, optimizers as optimizer_entries

TABLES = [registry.ALGORITHMS, registry.SERVER_OPTIMIZERS]
TABLES += [registry.CLIENT_OPTIMIZERS, registry.SCHEDULES]
# Two are built by the functions of others, with other values.
FORMULAS = [
  kind
  for kind in optimizer_entries.formulas(optimizers)
  if kind.__name__ not in ('Sgd', 'AdagradOfClients')
]
HYPERPARAMETERS = []
for _table in TABLES:
  for _name, _entry in _table.items():
    HYPERPARAMETERS += [pytest.param(h, id=f'{_name}-{h.name}') for h in _entry.hyperparameters]

# As published. Of an algorithm: its server's optimizer, uniform weights, whether it assumes SGD or
# sends more than its update, counted costs, hyperparameters, settings; of an optimizer the rate.
PUBLISHED = (
  """fed_avg/sgd; fed_avgm/sgdm; fed_adagrad/adagrad; fed_adam/adam; fed_yogi/yogi; fed_prox 0.02;
  scaffold uniform sgd more 2; scaffold_m uniform sgd more 2:1; fed_dyn uniform 0.02 False; ada_best
  uniform 1:1 0.02 0.96 False 1.0; fed_nova sgd more 0.0 0.0; fed_cm uniform sgd more 2:1 0.1;
  fed_exp uniform more 0.001; mime_lite sgd more sgdm 0.9 0.99 0.001; mime sgd more sgdm 0.9 0.99
  0.001; delta_sgd sgd 2.0 0.1; scaffnew uniform sgd 1.0 10 True; fed_dc uniform sgd more
  0.1; fed_acg uniform 1:1 0.85 0.01; fed_init uniform 0.1; fed_varp uniform; fed_lesam uniform
  0.05; q_fed_avg uniform sgd more 1.0; afl uniform more 0.001; moon uniform 1.0 0.5;
  fed_ntd 1.0 3.0; fed_lc 1.0; fed_per
  uniform head; lg_fed_avg uniform body; fed_rep uniform sgd head 0.5; fed_babu head; fed_bn uniform
  norm; ditto uniform sgd 0.1; apfl uniform sgd 0.5 False; p_fed_me uniform 15.0 5 0.05;
  per_fed_avg uniform sgd 0.05; fed_ala uniform sgd head 0.5 1.0; fed_proto uniform more * 1.0;
  fed_adamw uniform more 0.5 adamw; fed_muon uniform more 0.5 muon; fed_lada uniform more 0.9
  amsgrad;
  fed_sam/sgd 0.05; mo_fed_sam
  uniform sgd more 2:1 0.1 0.05; fed_gamma uniform sgd more 2 0.05; fed_speed uniform 0.1 False 0.1;
  fed_smoo uniform more 0.1 0.1 False;
  diloco/nesterov uniform adamw ('beta1=0.9', 'beta2=0.95', 'decay=0.1') keep 1.0 0.7; fed_ada2/adam
  adagrad; fed_lalr/sgd amsgrad average""",
  """sgd None; sgdm 0.9 None; adagrad 0.001 0.0 None None; adam 0.001 0.9 0.99 False None None;
  yogi 0.001 0.9 0.99 False None None; nesterov 0.9 0.7; lamb 0.9 0.999 1e-06 0.0 0.01;
  lion 0.9 0.99 0.0 0.001""",
  """sgd None; sgdm 0.9 0.01; nesterov 0.9 0.01; adagrad 1e-07 0.0 0.01; adam 0.9 0.999 1e-08 0.001;
  amsgrad 0.9 0.999 1e-08 0.001; adamw 0.9 0.999 1e-08 0.01 0.001; lion 0.9 0.99 0.0 0.0001; muon
  0.95 0.999 1e-08 0.0 none 0.001""",
  'constant 0; inv_sqrt 0; exp_decay 0.1 500 0; round_decay 0.998 0; diminishing 1.0 1 0',
)

CORRECTION = """
import dataclasses
import tensorflow as tf
from tff_adaptive import corrections

@dataclasses.dataclass(frozen=True)
class Pull(corrections.Correction):
  '''Pulls the clients back.

  More on it.
  '''
  num_clients: int
  strength: float = dataclasses.field(default=1, metadata={'help': 'How hard'})
  every: int = 2
  is_on: bool = True
  name = 'pull'

  def client_state(self, weights):
    return weights
"""


def _write(folder, text):
  path = folder / 'mine.py'
  path.write_text(text)
  return str(path)


@pytest.mark.parametrize('table, wanted', zip(TABLES, PUBLISHED))
def test_entries_are_as_published_and_can_be_keys(table, wanted):
  entries = []
  for name, entry in table.items():
    words = []
    settings = ()
    if isinstance(entry, registry.Algorithm):
      facts = {'uniform': entry.client_weighting == 'uniform', 'sgd': entry.assumes_sgd}
      words = [word for word, holds in {**facts, 'more': entry.uploads}.items() if holds]
      counts = entry.counts and entry.counts({})
      settings = entry.settings.values()
      words += [f'{counts.down}:{counts.up}'] if counts else []
      name = '/'.join(filter(None, (name, entry.server_optimizer)))
    rate = [entry.rate] if isinstance(entry, registry.ServerOptimizer) else []
    entries.append(' '.join(map(str, [name, *words, *entry.values({}).values(), *settings, *rate])))
    assert entry in {entry}
  assert '; '.join(entries) == ' '.join(wanted.split())


@pytest.mark.parametrize(
  'name, taken', [('fed_yogi', 'yogi'), ('fed_avg', 'sgd nesterov lamb lion')]
)
def test_an_algorithm_of_one_optimizer_takes_no_other(name, taken):
  entry = registry.algorithm(name)
  assert [s for s in registry.SERVER_OPTIMIZERS if registry.takes(entry, s)] == taken.split()
  assert registry.takes(entry, None)


@pytest.mark.parametrize('h', HYPERPARAMETERS)
def test_a_default_is_allowed_by_its_own_check(h):
  for default in (h.default, *h.default_with.values()):
    if default is not None:
      assert h.checked(default) == default
      assert type(default) is h.kind
  assert not h.help.endswith('.')
  with pytest.raises((TypeError, ValueError), match=f'^--{h.name} must be '):
    h.checked('x', f'--{h.name}')


@pytest.mark.parametrize('algorithm', registry.ALGORITHMS.values(), ids=list(registry.ALGORITHMS))
def test_an_algorithms_entry_is_that_of_its_correction(algorithm):
  classes = described.classes_of(algorithm)
  keeps = algorithm.settings.get('client_optimizer_state') == 'keep'
  assert algorithm.is_stateful == (any(c.keeps_client_state() for c in classes) or keeps)
  if algorithm.name in registry.PARTS:
    assert [c.name for c in classes] == [algorithm.name]
  correction = entries.resolve(algorithm.correction)
  configured = correction.configure(algorithm.values({}), corrections.RegisteredClients(10, 5.0))
  assert [type(part) for part in configured.parts] == list(classes or [corrections.Correction])
  assert algorithm.server_optimizer in (None, *registry.SERVER_OPTIMIZERS)


@pytest.mark.parametrize('name', registry.SERVER_OPTIMIZERS)
def test_a_server_optimizer_has_a_title_and_a_description(name):
  entry = registry.server_optimizer(name)
  assert entry.title.lower() == name != entry.description


@pytest.mark.parametrize('kind', FORMULAS, ids=lambda kind: kind.__name__)
def test_a_typed_builder_of_an_optimizer_has_the_defaults_of_its_class(kind):
  of_clients = {
    'SgdOfClients': optimizers.build_sgd,
    'AdamOfClients': published.build_adam_of_clients,
  }
  build = of_clients.get(kind.__name__) or getattr(optimizers, f'build_{kind.name}')
  defaults = {n: p.default for n, p in inspect.signature(build).parameters.items()}
  del defaults['learning_rate']
  if kind.name == 'sgdm':  # The function's default is plain SGD.
    assert defaults == {'momentum': 0.0}
  else:
    assert defaults == {h.name: h.default for h in hyperparameters.declared_by(kind)}


@pytest.mark.parametrize('name', registry.SCHEDULES)
def test_a_schedules_entry_is_that_of_its_class(name):
  entry = registry.schedule(name)
  schedule = schedules.build(name, 0.5)
  assert schedule.name == name
  fields = {f.name: f.default for f in dataclasses.fields(schedule) if f.name != 'base_rate'}
  assert fields == entry.values({})
  assert schedule(0) == 0.5


def test_defaults_depend_on_the_server_optimizer_where_they_do():
  ada_best = registry.algorithm('ada_best')
  assert (ada_best.default('beta'), ada_best.default('beta', 'yogi')) == (0.96, 0.2)
  values = ada_best.values({'mu': 0.5, 'beta': None}, 'adagrad')
  assert values == {'mu': 0.5, 'scale_mu': False, 'beta': 0.8, 'beta_decay': 1.0}
  with pytest.raises(KeyError, match='tau'):
    ada_best.default('tau')


@pytest.mark.parametrize(
  'algorithm, values, words',
  [
    ('adabest', {}, "unknown algorithm 'adabest'. Did you mean ada_best? Choose one of: fed_avg, "),
    ('ada_best', {'betta': 0.5}, "unknown option of ada_best 'betta'. Did you mean beta"),
    ('ada_best', {'beta': 1.5}, 'beta must be in [0, 1], found 1.5: the paper uses 0.2 to 0.98.'),
    ('ada_best', {'beta_decay': 0.0}, 'beta_decay must be in (0, 1], found 0.0'),
    ('ada_best', {'scale_mu': 1}, 'scale_mu must be true or false, found 1.'),
    ('ada_best', {'mu': 1e308}, 'mu must be a number that float32 can hold'),
    ('fed_nova', {'mu': -1.0}, 'mu must be finite and at least 0, found -1.0: give 0 for none.'),
    ('fed_prox', {'mu': -1.0}, 'mu must be finite and at least 0, found -1.0: its default is 0.02'),
    *(
      ('scaffold', {'scaffold_option': bad}, 'scaffold_option must be ')
      for bad in (0, 3, True, 1.0, '1')
    ),
  ],
)
def test_a_value_that_is_not_allowed_is_refused(algorithm, values, words):
  with pytest.raises((TypeError, ValueError)) as error:
    registry.algorithm(algorithm).values(values)
  assert str(error.value).startswith(words)


def test_a_users_correction_becomes_an_entry(tmp_path):
  path = _write(tmp_path, CORRECTION)
  entry = registry.algorithm(f'{path}:Pull')
  assert (entry.name, entry.title, entry.description) == ('pull', 'pull', 'Pulls the clients back')
  assert entry.values({}) == {'strength': 1.0, 'every': 2, 'is_on': True}
  assert type(entry.default('strength')) is type(entry.values({'strength': 3})['strength']) is float
  assert [h.help for h in entry.hyperparameters][:2] == ['How hard', 'every']
  assert (entry.is_stateful, entry.client_weighting) == (True, 'uniform')
  assert (entry.source.path, entry.uploads) == (path, '')
  configured = entry.correction.configure(
    entry.values({'strength': 3.0}), corrections.RegisteredClients(7, 1.0)
  )
  assert (configured.num_clients, configured.strength) == (7, 3.0)
  assert (configured.every, configured.is_on) == (2, True)
  with pytest.raises(ValueError, match=r'pull needs to know the registered clients: give clients='):
    entry.correction.configure(entry.values({}))


def test_what_a_users_correction_leaves_out_has_a_default(tmp_path):
  text = """
import dataclasses
from tff_adaptive import corrections
@dataclasses.dataclass(frozen=True)
class Plain(corrections.Correction):
  a: float = 0.5
  def client_update(self): pass
"""
  entry = registry.algorithm(f'{_write(tmp_path, text)}:Plain')
  assert (entry.name, entry.description) == ('Plain', "a user's own")
  assert (entry.is_stateful, entry.client_weighting) == (False, 'examples')
  assert entry.uploads == 'what its client_update uploads'


def test_a_users_own_entry_is_taken_as_it_is(tmp_path):
  text = 'from tff_adaptive.registry import Algorithm, ServerOptimizer\n'
  text += "MINE = Algorithm('mine', 'Mine', 'does it', counts=dict)\n"
  text += "SERVER = ServerOptimizer('s', 'S', 'serves', 'tff_adaptive.optimizers:build_sgdm')\n"
  path = _write(tmp_path, text)
  entry = registry.algorithm(f'{path}:MINE')
  assert (entry.name, entry.title, entry.counts) == ('mine', 'Mine', dict)
  assert registry.server_optimizer(f'{path}:SERVER').name == 's'
  assert entry.source.name == 'MINE'


@pytest.mark.parametrize(
  'old, new, words',
  [
    ('strength: float = dataclasses.field(', 'strength: str = dataclasses.field(', 'of the type'),
    ('every: int = 2', 'every: int = 2.5', 'every with a default that is refused: every must be'),
    ('every: int = 2', 'every: "Unknown" = 2', "cannot be used: NameError: name 'Unknown'"),
    ('  num_clients: int', '  size: int', 'has the option size without a default: give it one'),
    ("name = 'pull'", "name = 'a/b'", "has the name 'a/b'"),
    ("name = 'pull'", 'client_weighting = 1', 'has client_weighting 1: give'),
    ('@dataclasses.dataclass(frozen=True)', '', 'is no frozen dataclass: give a frozen dataclass'),
    ('frozen=True', 'frozen=False', 'is no frozen dataclass: give a frozen dataclass'),
    ('(corrections.Correction)', '', 'is no algorithm: give a frozen dataclass'),
  ],
)
def test_a_correction_that_does_not_serve_is_refused_in_one_line(tmp_path, old, new, words):
  assert old in CORRECTION
  path = _write(tmp_path, CORRECTION.replace(old, new))
  with pytest.raises(ValueError) as error:
    registry.algorithm(f'{path}:Pull')
  assert str(error.value).startswith(f'Pull of {path!r} ')
  assert words in str(error.value)
  assert '\n' not in str(error.value)


def test_a_users_function_becomes_a_server_optimizer(tmp_path):
  text = """
from tff_adaptive import optimizers
def build_fast(learning_rate, momentum=0.5, *, n: float | int = 3, on=False, tau: float = 1):
  'SGD, but fast.'
  return optimizers.build_sgdm(learning_rate, momentum)
"""
  entry = registry.server_optimizer(f'{_write(tmp_path, text)}:build_fast')
  assert (entry.name, entry.description) == ('fast', 'SGD, but fast')
  assert entry.values({}) == {'momentum': 0.5, 'n': 3, 'on': False, 'tau': 1.0}
  assert [h.kind for h in entry.hyperparameters] == [float, int, bool, float]
  assert entry.source.name == 'build_fast'
  # So do this project's and TFF's, whose annotations are unions: a number or a tensor, or none.
  text = 'import tensorflow_federated as tff\nfrom tff_adaptive.optimizers import build_yogi\n'
  path = _write(tmp_path, f'{text}build_adam = tff.learning.optimizers.build_adam\n')
  yogi = registry.server_optimizer(f'{path}:build_yogi')
  assert yogi.values({'tau': 0.5})['tau'] == 0.5
  assert yogi.values({})['initial_v'] is None
  adam = registry.server_optimizer(f'{path}:build_adam')
  assert adam.values({}) == {'beta_1': 0.9, 'beta_2': 0.999, 'epsilon': 1e-7}


@pytest.mark.parametrize(
  'signature, words',
  [
    ('def f(rate, momentum):', 'has the option momentum without a default'),
    ('def f(rate, name="x"):', "has the option name of the type <class 'str'>"),
    ('def f():', 'takes no learning rate as its first argument'),
    ('def f(*, rate=1.0):', 'takes no learning rate as its first argument'),
  ],
)
def test_a_function_that_does_not_serve_is_refused(tmp_path, signature, words):
  path = _write(tmp_path, f'{signature}\n  pass\nNUMBER = 3\n')
  for name, expected in (('f', words), ('NUMBER', 'is no function of a learning rate')):
    with pytest.raises(ValueError) as error:
      registry.server_optimizer(f'{path}:{name}')
    assert f'{name} of {path!r} {expected}' in str(error.value)
