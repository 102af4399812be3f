"""The HTML page of a report in a browser: tables and figure are there, nothing else is fetched."""

import matplotlib.image
import numpy as np
import pytest

from scripts import report
from tests.helpers import chromium, run_folders

pytestmark = pytest.mark.skipif(chromium.find() is None, reason='there is no Chromium')
OPTIMIZERS = ('fed_avg', 'fed_adam', 'fed_yogi')
# Form -> its flags, and a cell that its tables show.
FORMS = {
  'comparison': ((), 'FedYogi'),
  'rates': ((), '0.3'),
  'sensitivity': (('--parameter=server_learning_rate',), 'FedAdam'),
}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Runs of three optimizers by two rates and two seeds."""
  made = tmp_path_factory.mktemp('runs')
  for i, algorithm in enumerate(OPTIMIZERS):
    for rate in (0.1, 0.3):
      for seed in (0, 1):
        values = [0.1, *(0.9 - (0.5 + rate) / (t + i + 1) + seed / 50 for t in range(9))]
        name = f'{algorithm}_{rate}_{seed}'
        rates = {'client_learning_rate': rate, 'server_learning_rate': rate}
        run_folders.make(made / name, values, algorithm=algorithm, seed=seed, **rates)
  return made


@pytest.fixture(scope='module')
def browser(tmp_path_factory):
  with chromium.browser(tmp_path_factory.mktemp('profile')) as made:
    yield made


@pytest.mark.parametrize('form', FORMS)
def test_a_page_shows_its_tables_and_its_figure_and_fetches_nothing(
  form, folder, browser, tmp_path
):
  flags, cell = FORMS[form]
  page = tmp_path / 'page.html'
  output = f'--output={tmp_path / "page"}'
  command = ['report.py', str(folder), f'--form={form}', *flags, output, '--formats=html']
  assert report.main(command) == 0
  before = len(browser.requests)
  browser.open(page)
  fetched = [url for url in browser.requests[before:] if not url.startswith('data:')]
  assert fetched == [page.as_uri()]
  cells = browser.evaluate('[...document.querySelectorAll("th, td")].map(c => c.innerText)')
  assert any(cell in text for text in cells)
  assert browser.evaluate('document.documentElement.scrollWidth <= innerWidth')
  box = browser.evaluate('document.querySelector("svg").getBoundingClientRect().toJSON()')
  x, y, width, height = (box[name] for name in ('x', 'y', 'width', 'height'))
  assert width > 400
  assert height > 200
  browser.screenshot(tmp_path / 'figure.png', x, y, width, height)
  picture = matplotlib.image.imread(tmp_path / 'figure.png')[..., :3]
  is_ink = np.any(picture < 0.9, -1)
  assert 0.005 < is_ink.mean() < 0.95
  # Somewhere in each quarter.
  for part in np.array_split(is_ink, 2):
    assert all(half.any() for half in np.array_split(part, 2, axis=1))
  assert len(np.unique((picture * 16).astype(int).reshape(-1, 3), axis=0)) > 20
