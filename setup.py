"""Packaging of tff-adaptive."""

import setuptools

setuptools.setup(
  name='tff-adaptive',
  version='0.1.0',
  description='Adaptive and drift-correcting federated optimization for TensorFlow Federated',
  packages=setuptools.find_namespace_packages(
    include=['tff_adaptive', 'tff_adaptive.*', 'tasks', 'tasks.*', 'scripts', 'scripts.*']
  ),
  package_data={'scripts': ['configs/*.flags']},
  python_requires='>=3.9,<3.12',
  # TensorFlow Federated 0.87.0 is needed but not listed: one of its own pins can no longer be
  # installed, so that naming it would make every `pip install` fail. See BUILD_NOTES.md.
  install_requires=['absl-py', 'matplotlib', 'numpy', 'psutil', 'rich', 'scikit-learn'],
  entry_points={
    'console_scripts': [
      'tff-adaptive-train=scripts.train:main_cli',
      'tff-adaptive-sweep=scripts.sweep:main_cli',
      'tff-adaptive-report=scripts.report:main_cli',
      'tff-adaptive-benchmark=scripts.benchmark:main_cli',
      'tff-adaptive-worker=scripts.worker:main_cli',
    ]
  },
)
