"""Loads centralised image sets from files or, without a folder, TensorFlow Datasets."""

import collections
import gzip
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files as data_files

Split = collections.namedtuple('Split', ['x', 'y'])
_KEYS = ('x_train', 'y_train', 'x_test', 'y_test')
# MNIST's own files, by key.
_IDX_FILES = {
  'x_train': 'train-images-idx3-ubyte.gz',
  'y_train': 'train-labels-idx1-ubyte.gz',
  'x_test': 't10k-images-idx3-ubyte.gz',
  'y_test': 't10k-labels-idx1-ubyte.gz',
}


class ImageSet(NamedTuple):
  """The description of a set of labelled images with a training and a test split.

  Attributes:
    files: File names in the order of preference. Each file has the arrays x_train, y_train, x_test
      and y_test, with uint8 images and integer labels.
    tfds_name: The name of the data set in TensorFlow Datasets.
    shape: The shape of an image.
    num_classes: Number of classes. Their labels in the source are consecutive integers.
    first_label: The first label. `load` subtracts it, and raises DataError for labels out of range.
    idx_folder: Where a package of the system puts the set's four files in MNIST's format. Such
      files are read in `data_dir` too. '' if the set has none.
  """

  files: Sequence[str]
  tfds_name: str
  shape: tuple[int, ...]
  num_classes: int
  first_label: int = 0
  idx_folder: str = ''


MNIST = ImageSet(['mnist.npz', 'mnist_digits.npz'], 'mnist', (28, 28, 1), 10)
FASHION_MNIST = ImageSet(
  ['fashion_mnist.npz'],
  'fashion_mnist',
  (28, 28, 1),
  10,
  idx_folder='/usr/share/datasets/fashion-mnist',  # Of Debian's dataset-fashion-mnist.
)
EMNIST_LETTERS = ImageSet(
  ['emnist_letters.npz', 'letters.npz'], 'emnist/letters', (28, 28, 1), 26, first_label=1
)
CIFAR10 = ImageSet(['cifar10.npz', 'cifar10_lossless.npz'], 'cifar10', (32, 32, 3), 10)
CIFAR100 = ImageSet(['cifar100.npz'], 'cifar100', (32, 32, 3), 100)


def load(images: ImageSet, data_dir: str | None) -> tuple[Split, Split, str]:
  """Returns the training split, the test split (x uint8 [n, *shape], y int32 [n]) and the source.

  `data_dir` has one of the set's files; None uses the files of a package of the system, if it is
  there, or else TensorFlow Datasets. Bad data raise DataError.
  """
  arrays, source = _arrays(images, data_dir)
  splits = []
  for split in ('train', 'test'):
    x = arrays[f'x_{split}']
    y = arrays[f'y_{split}']
    _check(source, split, x, y, images)
    # The labels are in range, so that both the shift and the conversion are exact.
    labels = (y - images.first_label).astype(np.int32)
    splits.append(Split(x.reshape(-1, *images.shape), labels))
  return splits[0], splits[1], source


def _arrays(images: ImageSet, data_dir: str | None) -> tuple[dict[str, np.ndarray], str]:
  """Returns the four arrays by key, and where they are from."""
  name = images.tfds_name
  if data_dir is None:
    if images.idx_folder and _has_idx_files(images.idx_folder):
      return _read_idx_files(images.idx_folder), images.idx_folder
    return _from_tfds(name, images.files), f'TensorFlow Datasets {name}'
  for file in images.files:
    path = os.path.join(data_dir, file)
    if os.path.isfile(path):
      return data_files.read_npz(path, _KEYS), path
  if images.idx_folder and _has_idx_files(data_dir):
    return _read_idx_files(data_dir), data_dir
  names = list(images.files)
  if images.idx_folder:
    names.append(f'{_IDX_FILES["x_train"]} with the other three files')
  raise errors.DataError(
    f'there is no {" or ".join(names)} in {data_dir}; name a folder that holds it, or none to '
    f'download {name} by TensorFlow Datasets'
  )


def _has_idx_files(folder: str) -> bool:
  return all(os.path.isfile(os.path.join(folder, name)) for name in _IDX_FILES.values())


def _read_idx_files(folder: str) -> dict[str, np.ndarray]:
  """Reads four compressed files of bytes in MNIST's format.

  The header has the magic number, whose last byte is the number of axes, and the length of each
  axis, all as big-endian int32.
  """
  arrays = {}
  for key, name in _IDX_FILES.items():
    path = os.path.join(folder, name)
    with data_files.border(path), gzip.open(path) as file:
      content = file.read()
      axes = 3 if key.startswith('x') else 1
      magic, *shape = np.frombuffer(content, '>i4', 1 + axes).tolist()
      if magic != 0x800 + axes:
        raise ValueError(f'it does not begin as a file of bytes with {axes} axes does')
      values = np.frombuffer(content, np.uint8, offset=4 * (1 + axes))
      arrays[key] = values.reshape(shape)
  return arrays


def _check(source: str, split: str, x: np.ndarray, y: np.ndarray, images: ImageSet) -> None:
  """Raises DataError unless x and y have the shapes and labels that `images` describes."""
  layouts = [images.shape]
  if images.shape[-1] == 1:  # Several channels might come in any order.
    layouts += [images.shape[:2], (math.prod(images.shape),)]
  if x.dtype != np.uint8 or x.shape[1:] not in layouts or not len(x):
    raise errors.DataError(
      f'{source}: x_{split} is {list(x.shape)} of {x.dtype}; it must be images of uint8, of shape '
      f'{list(images.shape)} (height, width, channels)'
    )
  if y.dtype.kind not in 'iu' or y.shape != x.shape[:1]:
    raise errors.DataError(
      f'{source}: y_{split} is {list(y.shape)} of {y.dtype}; it must be whole numbers, one label '
      f'for each of {len(x)} images'
    )
  low = images.first_label
  high = low + images.num_classes - 1
  outside = np.flatnonzero((y < low) | (y > high))
  if len(outside):
    raise errors.DataError(
      f'{source}: y_{split}, row {outside[0]}: the label is {y[outside[0]]}; it must be from '
      f'{low} to {high} ({len(outside)} such rows)'
    )


def _from_tfds(name: str, files: Sequence[str]) -> dict[str, np.ndarray]:
  fix = f'try again, or name a folder that has {" or ".join(files)}'
  with data_files.border(f'{name} of TensorFlow Datasets', fix):
    import requests
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    if not builder.is_prepared():  # Its download tries an unreachable host for minutes.
      for url in builder.url_infos:
        requests.head(url, timeout=10)
      builder.download_and_prepare()
    splits = tfds.as_numpy(builder.as_dataset(split=['train', 'test'], batch_size=-1))
  arrays = {}
  for split, part in zip(('train', 'test'), splits):
    x = part['image']
    if name.startswith('emnist'):
      x = np.swapaxes(x, 1, 2)  # EMNIST's own files hold the images transposed.
    arrays[f'x_{split}'] = x
    arrays[f'y_{split}'] = part['label']
  return arrays
