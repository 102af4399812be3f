"""research/benchmarks/workloads.py: any Python with NumPy has the same clients."""

import pathlib
import subprocess
import sys

from research.benchmarks import workloads


def test_a_peer_has_the_same_clients_without_this_projects_packages(tmp_path):
  program = (
    f'import sys; sys.path.insert(0, {str(pathlib.Path(workloads.__file__).parent)!r})\n'
    'import workloads\n'
    "w = workloads.WORKLOADS['W4']\n"
    "print(workloads.synthetic_client(w, 107)['x'].sum().item())\n"
    'print(workloads.cohort(w, w.population, 3))\n'
    "print({'tensorflow', 'tff_adaptive', 'tff_adaptive_tasks'} & {*sys.modules})\n"
  )
  command = [sys.executable, '-c', program]
  w = workloads.WORKLOADS['W4']
  total = workloads.synthetic_client(w, 7)['x'].sum().item()
  said = subprocess.check_output(command, text=True, cwd=tmp_path)
  assert said == f'{total}\n{workloads.cohort(w, w.population, 3)}\nset()\n'
