"""The documents: pages are short and have headings; no sentence has to be read twice."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
FOLDERS = ('tff_adaptive', 'tasks', 'scripts', 'research', 'tests', 'docs', 'deploy')
# Beginnings of sentences that readers had to read twice.
UNCLEAR = (
  'Of a step: so much more than the deadline still fits',
  'What a node waits for that would else belong to no step',
  "None for all of the client's examples (one step an epoch), which",
  'So many times an even share a part may cost',
  'Bytes of states a second: who folds fewer',
  'so many clients are in work at once, whichever they are',
  'Whether outputs are predicted numbers themselves',
  'It does not look whether the tensors are what it was traced for',
  'takes half a millisecond less',
  'What a round lasts that has neither a client nor a deadline',
)


def words(path: pathlib.Path) -> str:
  """A file's text without line ends, indentation and the signs of comments."""
  return re.sub(r'[\s#]+', ' ', path.read_text(encoding='utf-8'))


def test_sentences_that_nobody_understood_are_gone():
  files = [*ROOT.glob('*.md')]
  for folder in FOLDERS:
    files += (p for p in (ROOT / folder).rglob('*') if p.suffix in ('.py', '.pyi', '.md', '.cc'))
  assert len(files) > 400
  texts = {path: words(path) for path in files if path != pathlib.Path(__file__)}
  found = [(path, s) for path, text in texts.items() for s in UNCLEAR if s in text]
  assert found == []
