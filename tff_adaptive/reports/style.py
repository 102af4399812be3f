"""The style of figures: colours, lines, legends, and the files that they are written to."""

import io
import os
from typing import Any

import numpy as np

from tff_adaptive._utils import atomic_files, texts

# Okabe and Ito's colours, which readers with any colour vision can distinguish. Yellow is left out,
# because it is faint on white. Lines differ in their dashes too.
COLORS = ('#0072B2', '#D55E00', '#009E73', '#CC79A7', '#000000', '#56B4E9', '#E69F00')
DASHES: tuple[Any, ...] = ('-', (0, (5, 1.5)), (0, (5, 1, 1, 1)), (0, (1.5, 1)), (0, (8, 2)))
MARKERS = 'osD^vPX'
OVER = (0, (3, 4))  # The dashes of a line over another one, which shows in the gaps.
_HATCHES = ('', '///', '...')
_LONGEST = 24  # Letters of a name beside an axis.
FORMATS = ('png', 'pdf', 'svg')
_DPI = 120
_LEGEND = 1.6  # Inches that a legend may take from the panels.


def line(number: int) -> dict[str, Any]:
  """Returns matplotlib's properties of line `number`, counted from 0."""
  return {
    'color': COLORS[number % len(COLORS)],
    'linestyle': DASHES[number % len(DASHES)],
    'linewidth': 1.4,
  }


def marked(number: int) -> dict[str, Any]:
  """Returns the properties of `line`, and of markers for its points."""
  return {**line(number), 'marker': MARKERS[number % len(MARKERS)], 'markersize': 4.5}


def fills(count: int) -> list[dict[str, Any]]:
  """Returns matplotlib's properties of areas: colours and, where these are used up, hatches."""
  if count <= len(COLORS) * len(_HATCHES):
    return [
      {
        'color': COLORS[number % len(COLORS)],
        'hatch': _HATCHES[number // len(COLORS)],
        'edgecolor': 'white',
        'linewidth': 0,
      }
      for number in range(count)
    ]
  import matplotlib

  # It rises in lightness, which readers with any colour vision see.
  colors = matplotlib.colormaps['cividis'](np.linspace(0, 1, count))
  return [{'color': color} for color in colors]


def short(name: str) -> str:
  """Returns a name for an axis: on one line, and with its middle left out if it is long."""
  name = texts.printable(' '.join(name.split()))
  if len(name) <= _LONGEST:
    return name
  half = _LONGEST // 2 - 1
  return f'{name[:half]}..{name[-half:]}'


def figure(
  rows: int, columns: int, width: float = 5.0, height: float = 3.6, title: str = ''
) -> tuple[Any, Any]:
  """Creates a figure with panels.

  Args:
    rows: Number of rows of panels.
    columns: Number of columns of panels.
    width: Width of a panel in inches.
    height: Height of a panel in inches.
    title: The title of the figure. Dollar signs in it do not enclose formulas.

  Returns:
    The `matplotlib.figure.Figure` and its axes, [rows, columns].
  """
  from matplotlib import figure as figure_lib  # Slow to import and needed here only.

  drawing = figure_lib.Figure(figsize=(width * columns, height * rows), layout='constrained')
  drawing.suptitle(title, parse_math=False)
  return drawing, drawing.subplots(rows, columns, squeeze=False)


def legend(drawing: Any, handles: Any, labels: Any) -> None:
  """Adds a legend on the right of the panels, and widens the figure if the legend is wide."""
  if handles:
    # Names that are not printable could not be measured.
    labels = [texts.printable(str(label)) for label in labels]
    added = drawing.legend(
      handles, labels, loc='outside right upper', fontsize='small', frameon=False
    )
    for text in added.get_texts():
      text.set_parse_math(False)
    width, height = drawing.get_size_inches()
    needed = added.get_window_extent().width / drawing.dpi
    drawing.set_size_inches(width + max(0.0, needed - _LEGEND), height)


def write(drawing: Any, path: str) -> None:
  """Writes a figure atomically, in the format that the path's extension names."""
  with atomic_files.atomic_path(path) as temporary:
    _save(drawing, temporary, os.path.splitext(path)[1][1:].lower())


def svg(drawing: Any) -> str:
  """Returns a figure as the text of an `<svg>` element."""
  file = io.BytesIO()
  _save(drawing, file, 'svg')
  text = file.getvalue().decode()
  return text[text.index('<svg') :]


def _save(drawing: Any, file: Any, kind: str) -> None:
  import matplotlib
  from matplotlib import text as text_lib

  # SVG files have the texts as comments. Names of metrics and settings may be a stranger's.
  for text in drawing.findobj(text_lib.Text):
    text.set_text(texts.printable(text.get_text()))
  for axes in drawing.axes:
    for label in (axes.title, axes.xaxis.label, axes.yaxis.label):
      label.set_parse_math(False)
  # There are no dates and random ids, so that a report made again is the same file.
  metadata = {'svg': {'Date': None}, 'pdf': {'CreationDate': None}}.get(kind, {})
  with matplotlib.rc_context({'svg.hashsalt': 'tff-adaptive'}):
    drawing.savefig(file, dpi=_DPI, format=kind or None, metadata=metadata)
