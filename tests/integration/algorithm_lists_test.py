"""The lists of algorithms in the guide agree with what the classes of the algorithms declare.

A new algorithm fails here until each page says of it what the page says of all others.
"""

import pathlib
import re

import pytest

from tff_adaptive import registry
from tff_adaptive.registry import described

GUIDE = pathlib.Path(__file__).parents[2] / 'docs' / 'guide'
ALGORITHMS = registry.ALGORITHMS.values()
# The methods of a part; `client_update` makes the upload too.
METHODS = (
  'client_state',
  'server_state',
  'broadcast',
  'exchange',
  'local_state',
  'loss_gradient',
  'gradient',
  'update',
  'restore',
  'client_update',
  'server_update',
  'inference_weights',
)


def page(name: str) -> str:
  return (GUIDE / f'{name}.md').read_text(encoding='utf-8')


def rows(name: str, heading: str) -> dict[str, str]:
  """The rest of the row by each title that the first column of a section's tables has."""
  section = re.split(r'^## ', page(name).partition(f'\n## {heading}\n')[2], flags=re.M)[0]
  by_title: dict[str, str] = {}
  for titles, rest in re.findall(r'^\| ([^|]*) \|(.*)\|$', section, re.M):
    for title in titles.split(', '):
      by_title[title] = by_title.get(title, '') + rest
  return by_title


def titles_of(text: str) -> set[str]:
  """The titles of algorithms in a text, the longest first, so that MimeLite is not Mime."""
  titles = sorted((entry.title for entry in ALGORITHMS), key=len, reverse=True)
  pattern = '|'.join(map(re.escape, titles))
  return set(re.findall(rf'(?<![\w/-])(?:{pattern})(?![\w/-])', text))


def is_refused_by_aggregators(entry: registry.Algorithm) -> bool:
  """Whether its clients send something that an aggregator which protects them does not see."""
  return bool(entry.uploads) or entry.settings.get('client_optimizer_state') == 'average'


@pytest.mark.parametrize('entry', ALGORITHMS, ids=lambda entry: entry.name)
def test_an_algorithm_has_its_row_in_every_list(entry):
  # What aggregators cover.
  covered = rows('privacy', 'What aggregators cover')
  of_optimizer = next(text for title, text in covered.items() if title.startswith('such as'))
  row = covered.get(entry.title) or (of_optimizer if entry.title == 'FedLALR' else None)
  assert row is not None, 'privacy.md: What aggregators cover'
  says_refused = 'refuse it' in row
  assert says_refused == is_refused_by_aggregators(entry)

  # What a class of one's own defines.
  defined = rows('own_algorithms', 'The methods of the class')
  assert entry.title in defined, 'own_algorithms.md: published algorithm'

  # Asynchronous training, where a part has values of its own, or cannot be part of it.
  has_values = METHODS[:4] + METHODS[7:11]
  asynchronous = rows('asynchronous', 'What the corrections mean')
  for part in described.classes_of(entry):
    if part.overrides(*has_values):
      assert part.title in asynchronous, 'asynchronous.md: What the corrections mean'
    is_out = part.overrides('exchange') or 'participation' in entry.settings
    if is_out:
      assert 'is refused' in asynchronous[part.title]


# The methods of compressors are those of one class, which compression.md describes.
@pytest.mark.parametrize(
  'part',
  [part for part in registry.PARTS.values() if not (part.compresses or part.compresses_down)],
  ids=lambda part: part.name,
)
def test_the_methods_of_a_part_are_those_that_the_guide_names(part):
  text = rows('own_algorithms', 'The methods of the class')[part.title]
  named = set(re.findall(r'`(\w+)`', text)) & set(METHODS)
  if 'upload' in text:
    named.add('client_update')
  assert named == {method for method in METHODS if part.overrides(method)}


def test_lists_within_sentences_have_those_whom_they_are_about():
  stateful = {entry.title for entry in ALGORITHMS if entry.is_stateful}
  sending_more = {entry.title for entry in ALGORITHMS if is_refused_by_aggregators(entry)}
  uniform = {entry.title for entry in ALGORITHMS if entry.client_weighting == 'uniform'}
  assume_sgd = {entry.title for entry in ALGORITHMS if entry.assumes_sgd}
  own_steps = {part.title for part in registry.PARTS.values() if part.makes_step}

  def listed(name: str, begin: str, end: str) -> set[str]:
    text = page(name)
    assert begin in text
    return titles_of(text.partition(begin)[2].partition(end)[0])

  not_proved = listed('privacy', 'with clients that keep a state (', ')')
  assert not_proved == stateful - sending_more
  equal = listed('formulas', 'By default the `p_i` are equal for', ' and the algorithms whose')
  assert equal == uniform - stateful
  assert (
    listed('formulas', '| `sgd` | `theta_i <- theta_i - eta_l d` | |', ' assume SGD;') == assume_sgd
  )
  assert listed('training', '`--client_optimizer` is refused by', ', because') == assume_sgd
  prescribing = {entry.title for entry in ALGORITHMS if 'client_optimizer' in entry.settings}
  assert listed('training', 'SGD at the\nclients. ', ' each stand for one') == prescribing
  assert listed('chains', 'a part that makes its own steps\n  (', ')') == own_steps
  # What the chart advises where clients send nothing but the update.
  plain = listed('which_optimizer', '| must be protected by', ': clients send nothing')
  assert plain
  assert not plain & (stateful | sending_more)
  more = listed('which_optimizer', 'clients send nothing but the update. ', ' can be used')
  assert more <= stateful - sending_more


def test_the_client_optimizers_are_named():
  row = page('training').partition('| `--client_optimizer=` | ')[2].partition(', or your own')[0]
  assert row.replace(' (the default)', '').split(', ') == [*registry.CLIENT_OPTIMIZERS]


def test_parts_that_are_no_algorithms_are_named():
  compressors = set()
  for name, part in registry.PARTS.items():
    if part.compresses or part.compresses_down:
      compressors.add(name)
  assert compressors <= set(re.findall(r'`(\w+)`', page('compression')))
  names = set(registry.PARTS) - set(registry.ALGORITHMS) - compressors
  assert names
  text = page('chains').partition('The parts that are no algorithms of their own are ')[2]
  assert names <= set(re.findall(r'`(\w+)`', text.partition('.\n')[0]))
