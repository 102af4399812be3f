"""The message of an error in one line, with its cause."""

from tff_adaptive._utils import error_text

FRAMES = ''.join(f'  File "/usr/lib/pool.py", line {i}, in f\n\n' for i in range(20))
OF_TENSORFLOW = (
  'Graph execution error:\n\nDetected at node model/embedding/lookup defined at (most recent call '
  f'last):\n{FRAMES}indices[0,3] = 50 is not in [0, 50)\n\t [[{{{{node model/embedding/lookup}}}}]]'
  ' [Op:__inference_run_7]'
)


def test_the_cause_of_an_error_in_a_graph_remains():
  assert error_text.in_brief(ValueError(OF_TENSORFLOW)) == 'indices[0,3] = 50 is not in [0, 50)'
  no_frames = OF_TENSORFLOW.replace(FRAMES, '<stack traces unavailable>\n')
  assert error_text.in_brief(no_frames) == 'indices[0,3] = 50 is not in [0, 50)'


def test_a_long_message_keeps_its_beginning_and_its_end():
  text = error_text.in_brief('a' * 500 + 'z' * 500)
  assert text == 'a' * 200 + ' ... ' + 'z' * 100
  assert error_text.in_brief('a\n  b') == 'a b'
  assert error_text.in_brief('a' * 300) == 'a' * 300


def test_a_message_of_files_alone_is_not_empty():
  assert error_text.in_brief('  File "a.py", line 3, in f') == 'File "a.py", line 3, in f'
