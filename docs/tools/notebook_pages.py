"""Makes pages from the notebooks in docs/notebooks: a hook of MkDocs, which mkdocs.yml names.

A page has the notebook's texts, code and outputs, and a link to the file.
"""

import html
import json
import pathlib
from typing import Any

_ENDING = '.ipynb'


def on_files(files: Any, config: Any) -> Any:
  """Adds a page notebooks/NAME.md for each notebooks/NAME.ipynb; MkDocs calls this."""
  from mkdocs.structure import files as files_lib

  for file in list(files):
    if file.src_uri.endswith(_ENDING):
      text = pathlib.Path(file.abs_src_path).read_text(encoding='utf-8')
      name = file.src_uri.rpartition('/')[2]
      uri = file.src_uri.removesuffix(_ENDING) + '.md'
      files.append(files_lib.File.generated(config, uri, content=markdown(json.loads(text), name)))
  return files


def markdown(notebook: dict[str, Any], name: str) -> str:
  """Converts the contents of a notebook file with this name to Markdown."""
  parts = []
  for cell in notebook['cells']:
    source = ''.join(cell['source'])
    if cell['cell_type'] == 'markdown':
      parts.append(source)
    else:
      parts += [f'```python\n{source}\n```', *map(_output, cell['outputs'])]
  parts.insert(1, f'[The notebook]({name}){{ download="{name}" }}')
  return '\n\n'.join(filter(None, parts)) + '\n'


def _output(output: dict[str, Any]) -> str:
  """Returns the output of a cell: a picture, a table or a text."""
  data = output.get('data', {})
  if 'image/png' in data:
    encoded = ''.join(''.join(data['image/png']).split())
    return f'<img alt="figure" src="data:image/png;base64,{encoded}">'
  if 'text/markdown' in data:
    return ''.join(data['text/markdown'])
  text = ''.join(output.get('text', data.get('text/plain', '')))
  if text.strip():
    return f'<pre><code>{html.escape(text.rstrip())}</code></pre>'
  return ''
