"""deploy/: accepted by the linters of Docker and Kubernetes, and true to the scripts' flags."""

import os
import subprocess
import sys

import yaml

from scripts import flags, worker
from scripts import settings as settings_lib

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_DOCKERFILE = os.path.join(_ROOT, 'deploy', 'Dockerfile')
_MANIFEST = os.path.join(_ROOT, 'deploy', 'kubernetes.yaml')


def _lint(*command):
  program = os.path.join(os.path.dirname(sys.executable), command[0])
  return subprocess.run([program, *command[1:]], capture_output=True, text=True)


def test_dockerfile_passes_hadolint(tmp_path):
  result = _lint('hadolint', _DOCKERFILE)
  assert result.returncode == 0, result.stdout + result.stderr
  bad = tmp_path / 'Dockerfile'
  bad.write_text('FROM python:latest\nRUN cd /tmp\n')
  assert _lint('hadolint', str(bad)).returncode != 0


def test_manifest_passes_kubernetes_validate(tmp_path):
  result = _lint('kubernetes-validate', '--strict', _MANIFEST)
  assert result.returncode == 0, result.stdout + result.stderr
  bad = tmp_path / 'bad.yaml'
  with open(_MANIFEST, encoding='utf-8') as file:
    bad.write_text(file.read().replace('replicas: 4', 'replicas: four'))
  assert _lint('kubernetes-validate', '--strict', str(bad)).returncode != 0


def test_the_trainer_names_every_worker_and_both_take_their_flags():
  with open(_MANIFEST, encoding='utf-8') as file:
    objects = {(o['kind'], o['metadata']['name']): o for o in yaml.safe_load_all(file)}
  workers = objects['StatefulSet', 'tff-worker']['spec']
  (container,) = workers['template']['spec']['containers']
  assert container['args'][:2] == ['python', 'scripts/worker.py']
  options = worker.parse(container['args'][2:])
  assert options.host == '0.0.0.0'
  assert container['ports'][0]['containerPort'] == options.port

  (trainer,) = objects['Job', 'tff-trainer']['spec']['template']['spec']['containers']
  assert trainer['args'][:2] == ['python', 'scripts/train.py']
  settings = settings_lib.resolve(flags.parse(trainer['args'][1:]))
  service = workers['serviceName']
  assert settings['workers'].split(',') == [
    f'tff-worker-{i}.{service}:{options.port}' for i in range(workers['replicas'])
  ]
  assert objects['Service', service]['spec']['clusterIP'] == 'None'
  assert trainer['image'] == container['image']
