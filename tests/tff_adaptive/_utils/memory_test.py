"""How much memory a process may still take."""

import psutil

from tff_adaptive._utils import memory


def test_a_control_group_limits_it(tmp_path, monkeypatch):
  limit, usage = tmp_path / 'max', tmp_path / 'current'
  monkeypatch.setattr(memory, '_CGROUP_LIMITS', [(limit, usage)])
  usage.write_text('400\n')
  assert memory.available_memory() <= psutil.virtual_memory().total  # There is no such group.
  for text, available in (('1000\n', 600), ('300\n', 0)):
    limit.write_text(text)
    assert memory.available_memory() == available
  limit.write_text('max\n')
  assert memory.available_memory() > 1000
