"""One HTML page that needs no other file: tables, and the figure drawn into it."""

import html
from collections.abc import Sequence

from tff_adaptive.reports import table as table_lib

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
table { border-top: 2px solid; border-bottom: 2px solid; }
caption { text-align: left; padding-bottom: 0.4rem; }
th, td { padding: 0.2rem 0.8rem; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
thead { border-bottom: 1px solid; }
svg { max-width: 100%; height: auto; background: white; }
"""


def build(title: str, tables: Sequence[table_lib.Table], picture: str = '') -> str:
  """Returns the text of the page.

  Args:
    title: Its heading.
    tables: Its tables, in order.
    picture: An `<svg>` element, or nothing.
  """
  parts = [f'<div class="wide">\n{table.html()}</div>\n' for table in tables]
  if picture:
    parts.append(f'<div class="wide" role="img" aria-label="figure">\n{picture}</div>\n')
  heading = html.escape(title)
  return (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    f'<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
    f'<h1>{heading}</h1>\n{"".join(parts)}</body>\n</html>\n'
  )
