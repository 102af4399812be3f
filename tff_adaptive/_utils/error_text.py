"""Brings the message of an error to one line that has its cause.

TensorFlow puts a list of file names before the cause of an error in a graph, and the graph's node
after it. Nothing here imports TensorFlow.
"""

import re

_LONGEST = 300
# Lines of TensorFlow's messages that say where an operation was made, and not what is wrong.
_OF_A_STACK = re.compile(
  r'\s*(File ".*", line \d+, in .*|Detected at node .*|Graph execution error:|Node: .*'
  r'|Original stack trace for .*|Function call stack:|<stack traces unavailable>)'
)
_OF_A_NODE = re.compile(r'\[\[[^\n]*?\]\]|\[Op:\w+\]')  # Such as [[{{node model/embedding}}]].


def in_brief(error: BaseException | str) -> str:
  """Returns the message of an error in one line of limited length, without lists of files.

  Of a longer message the beginning and the end remain.
  """
  message = str(error)
  lines = [line for line in message.splitlines() if not _OF_A_STACK.fullmatch(line)]
  text = ' '.join(_OF_A_NODE.sub('', '\n'.join(lines)).split())
  if not text:  # There was nothing else.
    text = ' '.join(message.split())
  if len(text) > _LONGEST:
    text = f'{text[: 2 * _LONGEST // 3]} ... {text[-_LONGEST // 3 :]}'
  return text
