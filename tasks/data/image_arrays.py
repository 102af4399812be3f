"""Loads centralised image sets from .npz files or, without a folder, TensorFlow Datasets."""

import collections
import contextlib
import math
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files as data_files

Split = collections.namedtuple('Split', ['x', 'y'])
_SECONDS = 10  # That a host may take to answer.
_KEYS = ('x_train', 'y_train', 'x_test', 'y_test')


def load(
  data_dir: str | None,
  files: Sequence[str],
  tfds_name: str,
  image_shape: Sequence[int],
  num_classes: int,
  first_label: int = 0,
) -> tuple[Split, Split, str]:
  """Returns training and test split, uint8 [n, *image_shape] and int32 [n], and their source.

  Args:
    data_dir: A folder with one of the files; None uses TensorFlow Datasets.
    files: File names in the order of preference. Each file has the arrays x_train, y_train, x_test
      and y_test, with uint8 images and integer labels.
    tfds_name: The name of the data set in TensorFlow Datasets.
    image_shape: The shape of an image.
    num_classes: Number of classes. Other labels in either split raise a DataError.
    first_label: The smallest label in the source. Labels are shifted so that they start with 0.
  """
  if data_dir is None:
    arrays, source = _from_tfds(tfds_name, files), f'TensorFlow Datasets {tfds_name}'
  else:
    found = [f for f in files if os.path.isfile(os.path.join(data_dir, f))]
    if not found:
      raise errors.DataError(
        f'there is no {" or ".join(files)} in {data_dir}; name a folder that holds it, or none to '
        f'download {tfds_name} by TensorFlow Datasets'
      )
    source = os.path.join(data_dir, found[0])
    arrays = data_files.read_npz(source, _KEYS)
  splits = []
  for split in ('train', 'test'):
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    labels = range(first_label, first_label + num_classes)
    _check(source, split, x, y, image_shape, labels)
    # Shifted before narrowing: both are exact, for the labels are in range.
    splits.append(Split(x.reshape(-1, *image_shape), (y - first_label).astype(np.int32)))
  return splits[0], splits[1], source


def _check(
  source: str, split: str, x: np.ndarray, y: np.ndarray, image_shape: Sequence[int], labels: range
) -> None:
  """Raises DataError unless the images have the shape and each has a valid label."""
  layouts = [tuple(image_shape)]
  if image_shape[-1] == 1:  # Several channels might come in any order.
    layouts += [layouts[0][:2], (math.prod(image_shape),)]
  if x.dtype != np.uint8 or x.shape[1:] not in layouts or not len(x):
    raise errors.DataError(
      f'{source}: x_{split} is {list(x.shape)} of {x.dtype}; it must be images of uint8, of shape '
      f'{list(image_shape)} (height, width, channels)'
    )
  if y.dtype.kind not in 'iu' or y.shape != x.shape[:1]:
    raise errors.DataError(
      f'{source}: y_{split} is {list(y.shape)} of {y.dtype}; it must be whole numbers, one label '
      f'for each of {len(x)} images'
    )
  outside = np.flatnonzero((y < labels[0]) | (y > labels[-1]))
  if len(outside):
    raise errors.DataError(
      f'{source}: y_{split}, row {outside[0]}: the label is {y[outside[0]]}; it must be from '
      f'{labels[0]} to {labels[-1]} ({len(outside)} such rows)'
    )


def _from_tfds(name: str, files: Sequence[str]) -> dict[str, np.ndarray]:
  fix = f'try again, or name a folder that has {" or ".join(files)}'
  with data_files.border(f'{name} of TensorFlow Datasets', fix):
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    if not builder.is_prepared():
      # TensorFlow Datasets would try again for minutes. Archives that are there need no host.
      downloads = pathlib.Path(builder.data_dir_root, 'downloads')
      sizes = {path.stat().st_size for path in downloads.glob('*')}
      for url, archive in builder.url_infos.items():
        if archive.size not in sizes:
          host = urllib.parse.urlsplit(url).netloc
          with contextlib.suppress(urllib.error.HTTPError):  # It answers.
            urllib.request.urlopen(f'https://{host}', timeout=_SECONDS).close()
      builder.download_and_prepare()
    splits = tfds.as_numpy(builder.as_dataset(split=['train', 'test'], batch_size=-1))
  arrays = {}
  for split, part in zip(('train', 'test'), splits):
    x = part['image']
    if name.startswith('emnist'):
      x = np.swapaxes(x, 1, 2)  # EMNIST's own files hold the images transposed.
    arrays[f'x_{split}'], arrays[f'y_{split}'] = x, part['label']
  return arrays
