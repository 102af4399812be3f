"""The memory that a control group leaves."""

import psutil

from tff_adaptive.runs import memory


def test_a_control_group_limits_it(tmp_path, monkeypatch):
  limit = tmp_path / 'max'
  usage = tmp_path / 'current'
  monkeypatch.setattr(memory, '_CGROUP_LIMITS', [(limit, usage)])
  usage.write_text('900\n')  # Of this 500 are a cache of files.
  (tmp_path / 'memory.stat').write_text('anon 400\ninactive_file 300\nactive_file 200\n')
  assert memory.available() <= psutil.virtual_memory().total  # There is no such group.
  for text, available in (('1000\n', 600), ('300\n', 0)):
    limit.write_text(text)
    assert memory.available() == available
  # Version 1 names the totals, which count the groups below too.
  (tmp_path / 'memory.stat').write_text('total_inactive_file 100\ninactive_file 300\n')
  limit.write_text('1000\n')
  assert memory.available() == 200
  limit.write_text('max\n')
  assert memory.available() > 1000
