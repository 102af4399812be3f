"""Packaging of tff-adaptive."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(
  r"__version__ = '(.+)'", (ROOT / 'tff_adaptive' / '_version.py').read_text(encoding='utf-8')
).group(1)
# Images that are built from the packages alone have none.
STORED_ROWS = [
  (f'share/tff-adaptive/{study}', [f'results/{study}/rows.csv'])
  for study in ('bench', 'bench_data')
  if (ROOT / 'results' / study / 'rows.csv').is_file()
]


def _packages() -> list[str]:
  """The packages; those of tasks/ and scripts/ by the links that name them as they are imported."""
  include = []
  for name in ('tff_adaptive', 'tff_adaptive_tasks', 'tff_adaptive_scripts'):
    include += [name, f'{name}.*']
  return setuptools.find_namespace_packages(include=include)


setuptools.setup(
  name='tff-adaptive',
  version=VERSION,
  description='Adaptive and drift-correcting federated optimization for TensorFlow Federated',
  long_description=(ROOT / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  license_files=['LICENSE'],
  keywords=['federated learning', 'optimization', 'TensorFlow Federated'],
  classifiers=[
    'Development Status :: 4 - Beta',
    'Intended Audience :: Science/Research',
    'Operating System :: POSIX :: Linux',
    'Programming Language :: Python :: 3 :: Only',
    'Programming Language :: Python :: 3.10',
    'Programming Language :: Python :: 3.11',
    'Programming Language :: Python :: 3.12',
    'Programming Language :: Python :: 3.13',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
    'Typing :: Typed',
  ],
  packages=_packages(),
  # What tff-adaptive-environment installs, and the stored rows of tff-adaptive-bench.
  data_files=[
    ('share/tff-adaptive', ['requirements.lock', 'requirements-gpu.lock']),
    *STORED_ROWS,
  ],
  package_data={
    'tff_adaptive_scripts': ['configs/*.flags', 'comparison/*.txt'],
    'tff_adaptive': ['**/*.pyi', '*.pyi', 'py.typed', 'kernels/*.cc', 'environment/site/*'],
    'tff_adaptive_tasks': ['*.pyi', 'py.typed'],
  },
  python_requires='>=3.10,<3.14',
  # TensorFlow Federated 0.87.0 is needed but not listed: its own pins cannot be installed, so that
  # naming it would make every `pip install` fail. `tff-adaptive-environment` installs it.
  install_requires=[
    'absl-py',
    'cachetools',
    'jinja2',  # For pandas' Styler, which writes the tables of reports.
    'lazy_loader',
    'matplotlib',
    'numpy',
    'pandas',
    'psutil',
    'rich',
    'scikit-learn',
  ],
  extras_require={
    'huggingface': ['datasets'],
    'mlflow': ['mlflow-skinny', 'alembic', 'sqlalchemy'],  # The last two are for its SQLite file.
    'notebooks': ['jupyterlab'],
    'parquet': ['pyarrow'],
    'ray': ['ray>=2.52'],
    'search': ['optuna>=5'],
    'wandb': ['wandb'],
  },
  entry_points={
    'console_scripts': [
      'tff-adaptive-environment=tff_adaptive.environment.install:main',
      'tff-adaptive-train=tff_adaptive_scripts._entry:train',
      'tff-adaptive-sweep=tff_adaptive_scripts._entry:sweep',
      'tff-adaptive-report=tff_adaptive_scripts._entry:report',
      'tff-adaptive-partition-report=tff_adaptive_scripts._entry:partition_report',
      'tff-adaptive-export=tff_adaptive_scripts._entry:export',
      'tff-adaptive-replay=tff_adaptive_scripts._entry:replay',
      'tff-adaptive-bench=tff_adaptive_scripts._entry:bench',
    ]
  },
)
