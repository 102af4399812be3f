"""An entry that is added to the registry is a flag, a check and a default."""

import itertools
from types import MappingProxyType

import pytest

from scripts.cli import flags, help_text, hyperparameters, resolve
from tff_adaptive import registry
from tff_adaptive._utils import validation
from tff_adaptive.registry import table as registry_table


@pytest.fixture
def damped(monkeypatch):
  """Adds an algorithm with a hyperparameter of its own."""
  strength = registry.Hyperparameter(
    'strength', float, 0.5, 'Weight of the pull', validation.at_least_zero, 'give 0.5, say'
  )
  entry = registry.Algorithm(
    'damped',
    'Damped',
    'a pull towards the past',
    hyperparameters=(strength,),
    is_stateful=True,
    client_weighting='uniform',
  )
  table = MappingProxyType({**registry.ALGORITHMS, 'damped': entry})
  for module in (registry, registry_table):
    monkeypatch.setattr(module, 'ALGORITHMS', table)


def test_a_new_entry_is_a_flag_with_check_default_and_help(damped):
  run_settings = resolve.resolve(flags.parse(['', '--algorithm=damped']))
  assert run_settings.flat()['strength'] == run_settings.correction['strength'] == 0.5
  assert run_settings.clients.client_weighting == 'uniform'
  given = flags.parse(['', '--algorithm=damped', '--strength=0.25'])
  assert resolve.resolve(given).correction == {'strength': 0.25}
  with pytest.raises(ValueError, match=r'--strength must be .*, found -1\.0: give 0\.5, say'):
    resolve.resolve(algorithm='damped', strength=-1.0)
  with pytest.raises(ValueError, match=r'--strength has no meaning .* fed_yogi; .*damped'):
    resolve.resolve(strength=1.0)
  text = ' '.join(help_text.text().split())
  assert 'damped a pull towards the past; clients keep a state' in text
  assert '--strength Weight of the pull. Used by damped. Default 0.5.' in text
  adagrad = hyperparameters.listed(registry.SERVER_OPTIMIZERS['adagrad'])
  assert adagrad == 'tau=0.001, beta1=0, initial_v'  # One without a default is there by its name.


def test_a_name_means_one_thing():
  def names(entries):
    lists = (entry.hyperparameters for entry in entries.values())
    return {hyperparameter.name for hyperparameter in itertools.chain.from_iterable(lists)}

  assert not names(registry.ALGORITHMS) & names(registry.SERVER_OPTIMIZERS)
  for named in hyperparameters.named().values():
    assert len({(h.kind, h.help) for h in named.owners.values()}) == 1
