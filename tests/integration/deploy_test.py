"""deploy/: accepted by the linters of Docker and Kubernetes, and true to the commands' flags."""

import glob
import os
import re
import shlex
import subprocess
import sys

import pytest
import yaml
from packaging.requirements import Requirement

import tff_adaptive
from scripts.cli import flags, resolve
from tff_adaptive.environment import install

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_DOCKERFILE = os.path.join(_ROOT, 'deploy', 'Dockerfile')
# What markers of the locks depend on.
_IMAGE = {
  'python_full_version': '3.12.12',
  'python_version': '3.12',
  'platform_machine': 'x86_64',
  'platform_python_implementation': 'CPython',
  'implementation_name': 'cpython',
  'sys_platform': 'linux',
}
_MANIFESTS = sorted(glob.glob(os.path.join(_ROOT, 'deploy', '*.yaml')))


def _lint(*command):
  program = os.path.join(os.path.dirname(sys.executable), command[0])
  return subprocess.run([program, *command[1:]], capture_output=True, text=True)


def _objects(path):
  with open(path, encoding='utf-8') as file:
    return {o['kind']: o for o in yaml.safe_load_all(file)}


def _cluster(objects):
  if 'RayCluster' in objects:
    return objects['RayCluster']['spec']
  return objects['RayJob']['spec']['rayClusterSpec']


def _image():
  """The name of the image that the Dockerfile says to build."""
  with open(_DOCKERFILE, encoding='utf-8') as file:
    return re.search(r'docker push (\S+)', file.read())[1]


@pytest.mark.parametrize('path', [_DOCKERFILE, f'{_DOCKERFILE}.task'], ids=os.path.basename)
def test_dockerfiles_pass_hadolint(path):
  result = _lint('hadolint', path)
  assert result.returncode == 0, result.stdout + result.stderr


def test_a_registry_serves_one_image_of_this_version_to_all_pods():
  image = _image()
  assert image == f'registry.example.com/tff-adaptive:{tff_adaptive.__version__}'
  for path in _MANIFESTS:
    with open(path, encoding='utf-8') as file:
      assert set(re.findall(r'image: (\S+)', file.read())) == {image}
  with open(f'{_DOCKERFILE}.task', encoding='utf-8') as file:
    assert f'FROM {image}\n' in file.read()
  with open(os.path.join(_ROOT, 'docs', 'guide', 'kubernetes.md'), encoding='utf-8') as file:
    assert f'`{image}`' in file.read()


def test_the_image_has_no_tools_of_tests():
  with open(_DOCKERFILE, encoding='utf-8') as file:
    copied = re.findall(r'^COPY (.+) \S+$', file.read(), re.MULTILINE)
  assert {*' '.join(copied).split()}.isdisjoint({'tests', 'docs', 'requirements-dev.lock', '.'})
  installed = {*_versions('requirements.lock'), *_versions('requirements-ray.lock')}
  assert installed.isdisjoint({'pytest', 'hypothesis', 'mypy', 'ruff', 'mkdocs', 'nbclient'})


def test_the_image_has_a_tag_and_its_packages_are_pinned_by_hash():
  """No registry of images could be reached to look up a digest: docs/security.md says so."""
  with open(_DOCKERFILE, encoding='utf-8') as file:
    lines = file.read().splitlines()
  [image] = [line for line in lines if line.startswith('FROM ')]
  assert re.fullmatch(r'FROM python:3\.12-slim-bookworm(@sha256:[0-9a-f]{64})?', image)
  with open(os.path.join(_ROOT, 'docs', 'security.md'), encoding='utf-8') as file:
    security = file.read()
  assert image.removeprefix('FROM ').partition('@')[0] in security
  [install] = [line for line in lines if 'pip install' in line and '-e .' not in line]
  assert '--require-hashes --no-deps -r requirements-ray.lock' in install
  assert any('tff_adaptive/environment/install.py --system' in line for line in lines)
  assert any(line.split() == ['RAY_AUTH_MODE=token'] for line in lines)  # Of an ENV.


def test_what_the_image_adds_leaves_the_locked_versions_as_they_are():
  locked = _versions('requirements.lock')
  added = _versions('requirements-ray.lock')
  assert {name: locked[name] for name in added if name in locked} == {
    name: version for name, version in added.items() if name in locked
  }
  assert {'aiohttp-cors', 'opencensus', 'prometheus-client'} <= set(added) - set(locked)


def _versions(name):
  """Package -> its locked version for the image's Python, on Linux on x86-64."""
  with open(os.path.join(_ROOT, name), encoding='utf-8') as file:
    blocks = install.requirement_blocks(file.read())
  versions = {}
  for block in blocks:
    requirement = Requirement(block.partition('\\')[0])
    if requirement.marker is None or requirement.marker.evaluate(_IMAGE):
      versions[requirement.name] = str(requirement.specifier).removeprefix('==')
  return versions


@pytest.mark.parametrize('path', _MANIFESTS, ids=os.path.basename)
def test_manifests_pass_kubernetes_validate(path, tmp_path):
  """KubeRay's own kinds have no schema there: their pods are validated as pods."""
  objects = _objects(path)
  spec = _cluster(objects)
  groups = [spec['headGroupSpec'], *spec['workerGroupSpecs']]
  templates = [group['template'] for group in groups]
  if 'RayJob' in objects:
    templates.append(objects['RayJob']['spec']['submitterPodTemplate'])
  plain = [o for kind, o in objects.items() if not kind.startswith('Ray')]
  for i, template in enumerate(templates):
    pod = {'apiVersion': 'v1', 'kind': 'Pod', **template}
    pod['metadata'] = {'name': f'pod-{i}', **template['metadata']}
    plain.append(pod)
  objects_file = tmp_path / 'objects.yaml'
  objects_file.write_text(yaml.safe_dump_all(plain))
  result = _lint('kubernetes-validate', '--strict', str(objects_file))
  assert result.returncode == 0, result.stdout + result.stderr
  assert result.stdout.count('passed') + result.stderr.count('passed') == len(plain)


@pytest.mark.parametrize('path', _MANIFESTS, ids=os.path.basename)
def test_a_cluster_asks_for_a_token_and_lets_its_own_pods_alone_in(path):
  ray = pytest.importorskip('ray')
  objects = _objects(path)
  spec = _cluster(objects)
  assert spec['rayVersion'] == ray.__version__
  assert spec['authOptions'] == {'mode': 'token'}
  policy = objects['NetworkPolicy']['spec']
  (label,) = policy['podSelector']['matchLabels'].items()
  for group in (spec['headGroupSpec'], *spec['workerGroupSpecs']):
    assert label in group['template']['metadata']['labels'].items()
    (container,) = group['template']['spec']['containers']
    assert container['securityContext']['allowPrivilegeEscalation'] is False
  peers = policy['ingress'][0]['from']
  assert peers[0] == {'podSelector': {'matchLabels': dict([label])}}


def test_the_jobs_command_is_one_that_the_trainer_takes():
  spec = _objects(os.path.join(_ROOT, 'deploy', 'ray-job.yaml'))['RayJob']['spec']
  program, script, *arguments = shlex.split(spec['entrypoint'])
  assert (program, script) == ('python', 'scripts/train.py')
  pytest.importorskip('ray')
  settings = resolve.resolve(flags.parse([script, *arguments]))
  assert settings.runtime.ray == 'auto'
  # The pod may end at any time, and nothing is saved.
  assert settings.output.rounds_per_checkpoint <= 10
  group = spec['rayClusterSpec']['workerGroupSpecs'][0]
  workers = group['replicas'] * int(group['rayStartParams']['num-cpus'])
  assert settings.runtime.subrounds >= workers / settings.runtime.cpus_per_worker
  mounts = spec['rayClusterSpec']['headGroupSpec']['template']['spec']['containers'][0]
  assert any(settings.output.output_dir.startswith(m['mountPath']) for m in mounts['volumeMounts'])
