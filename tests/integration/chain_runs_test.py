"""Chains from the command line: options by part, both engines, resumption to the bit."""

import json

import numpy as np
import pytest

import tff_adaptive
from scripts import train
from scripts.cli import resolve
from tests.helpers import fakes

FLAGS = ('--task=digits', '--clients_per_round=3', '--seed=1', '--algorithm=scaffold+sam+clip')
OPTIONS = ('--algorithm_option=sam.rho=0.1', '--algorithm_option=norm=0.5')


def weights(folder, *flags):
  """The weights after a run of train.py."""
  with fakes.no_figures():
    arguments = ['train.py', *FLAGS, *OPTIONS, *flags, f'--output_dir={folder}']
    assert train.main(arguments) == 0
  return tff_adaptive.load_run(str(folder)).weights


def equal(one, other):
  return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.exhaustive
def test_a_resumed_chain_equals_an_uninterrupted_one_to_the_bit(tmp_path):
  whole = weights(tmp_path / 'whole', '--rounds=4')
  weights(tmp_path / 'parts', '--rounds=2')
  assert equal(weights(tmp_path / 'parts', '--rounds=4'), whole)
  settings = json.loads((tmp_path / 'whole' / 'config.json').read_text())['settings']
  assert settings['algorithm_option'] == ['scaffold_option=2', 'rho=0.1', 'norm=0.5']


@pytest.mark.exhaustive
def test_the_flags_of_local_training_are_the_parts(tmp_path):
  """--sam_rho and --clip_norm add the same parts behind the algorithm's own."""
  chain = weights(tmp_path / 'chain', '--rounds=2')
  with fakes.no_figures():
    flags = ['--algorithm=scaffold', '--sam_rho=0.1', '--clip_norm=0.5', '--rounds=2']
    assert train.main(['train.py', *FLAGS[:3], *flags, f'--output_dir={tmp_path / "flags"}']) == 0
  assert equal(tff_adaptive.load_run(str(tmp_path / 'flags')).weights, chain)


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    ({'algorithm_option': ['rho=-1']}, 'rho must be finite and at least 0'),
    ({'algorithm_option': ['clap.norm=1']}, "unknown option of scaffold.sam 'clap.norm'"),
    ({'algorithm_option': ['sam.=1']}, 'write it as NAME=VALUE'),
    ({'scaffold_option': 1}, 'give --algorithm_option=scaffold_option=VALUE'),
    ({'client_optimizer': 'adam'}, 'does not go with --algorithm scaffold.sam'),
  ],
)
def test_options_that_do_not_fit_a_chain_are_refused(flags, words):
  with pytest.raises(ValueError, match=words):
    resolve.resolve(algorithm='scaffold+sam', **flags)
