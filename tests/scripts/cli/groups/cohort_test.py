"""The flags of the choice of clients."""

import pytest

from scripts.cli import help_text
from tests.helpers import settings
from tff_adaptive import population


def rule(*flags):
  run_settings = settings.of(*flags)
  return run_settings.cohort.build(run_settings.clients.client_weighting)


def test_without_a_flag_clients_are_drawn_uniformly_as_ever():
  assert rule() is None
  assert settings.of().flat()['cohort'] is None


def test_a_rule_takes_its_options_and_weights_follow_the_weighting_of_clients():
  assert rule('--cohort=cyclic') == population.Cyclic()
  flags = ['--cohort=power_of_choice', '--cohort_option=candidates=30']
  assert rule(*flags) == population.PowerOfChoice(candidates=30)
  for weighting in ('examples', 'uniform'):
    flags = ['--cohort=importance', '--cohort_option=by=losses', '--algorithm=fed_avg']
    expected = population.Importance(weighting, by='losses')
    assert rule(*flags, f'--client_weighting={weighting}') == expected


def test_clients_have_weights_only_if_the_rule_gives_them():
  for name, expected in (('by_size', True), ('oort', False)):
    run_settings = settings.of(f'--cohort={name}', '--algorithm=fed_avg')
    task = type('Task', (), {'unit_starts': None})
    assert run_settings.client_training(task).cohort_weights == expected
    assert not run_settings.client_training(task, epochs=2).cohort_weights


@pytest.mark.parametrize(
  'flags, words',
  [
    (['--cohort=unifrom'], "--cohort: unknown cohort 'unifrom'.*uniform"),
    (['--cohort=cyclic', '--cohort_option=by=norms'], '--cohort_option: .*option of cyclic'),
    (['--cohort=importance', '--cohort_option=mix=2'], r'--cohort_option: mix must be in \(0, 1\]'),
    (['--cohort_option=mix=2'], '--cohort_option needs --cohort'),
    (['--cohort=cyclic', '--algorithm=scaffnew'], 'trains all clients in every round'),
    (['--cohort=by_size', '--algorithm=scaffold'], 'which would have none: take another'),
    (
      ['--cohort=by_size', '--aggregator=geometric_median', '--algorithm=fed_avg'],
      '--aggregator=geometric_median makes no sum of them: take another aggregator',
    ),
    (
      ['--cohort=oort', '--synchrony=buffered', '--concurrency=10'],
      'does not go with --synchrony=buffered',
    ),
    (
      [
        '--cohort=cyclic',
        '--aggregator=dp_tree',
        '--aggregator_option=noise_multiplier=1',
        '--client_weighting=uniform',
      ],
      'does not go with --aggregator=dp_tree',
    ),
    (['--cohort=importance', '--aggregator=secure'], 'does not go with --aggregator=secure'),
  ],
)
def test_what_does_not_go_together_is_refused(flags, words):
  with pytest.raises(ValueError, match=words):
    settings.of(*flags)


def test_the_help_lists_rules_and_their_options():
  text = ' '.join(help_text.text('cohorts').split())
  for words in ('power_of_choice of d candidates the m with', 'candidates=0', 'by=norms, mix=0.2'):
    assert words in text
