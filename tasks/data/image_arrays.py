"""Loads centralised image sets from .npz files or, without a folder, TensorFlow Datasets."""

import collections
import math
import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files as data_files

Split = collections.namedtuple('Split', ['x', 'y'])
_KEYS = ('x_train', 'y_train', 'x_test', 'y_test')


class ImageSet(NamedTuple):
  """The description of a set of labelled images with a training and a test split.

  Attributes:
    files: File names in the order of preference. Each file has the arrays x_train, y_train, x_test
      and y_test, with uint8 images and integer labels.
    tfds_name: The name of the data set in TensorFlow Datasets.
    shape: The shape of an image.
    num_classes: Number of classes. Their labels in the source are consecutive integers.
    first_label: The first label. `load` subtracts it, and raises DataError for labels out of range.
  """

  files: Sequence[str]
  tfds_name: str
  shape: tuple[int, ...]
  num_classes: int
  first_label: int = 0


MNIST = ImageSet(['mnist.npz', 'mnist_digits.npz'], 'mnist', (28, 28, 1), 10)
EMNIST_LETTERS = ImageSet(
  ['emnist_letters.npz', 'letters.npz'], 'emnist/letters', (28, 28, 1), 26, first_label=1
)
CIFAR10 = ImageSet(['cifar10.npz', 'cifar10_lossless.npz'], 'cifar10', (32, 32, 3), 10)
CIFAR100 = ImageSet(['cifar100.npz'], 'cifar100', (32, 32, 3), 100)


def load(images: ImageSet, data_dir: str | None) -> tuple[Split, Split, str]:
  """Returns the training split, the test split (x uint8 [n, *shape], y int32 [n]) and the source.

  `data_dir` has one of the set's files; None uses TensorFlow Datasets. Bad data raise DataError.
  """
  name = images.tfds_name
  if data_dir is None:
    arrays, source = _from_tfds(name, images.files), f'TensorFlow Datasets {name}'
  else:
    found = [f for f in images.files if os.path.isfile(os.path.join(data_dir, f))]
    if not found:
      raise errors.DataError(
        f'there is no {" or ".join(images.files)} in {data_dir}; name a folder that holds it, or '
        f'none to download {name} by TensorFlow Datasets'
      )
    source = os.path.join(data_dir, found[0])
    arrays = data_files.read_npz(source, _KEYS)
  splits = []
  for split in ('train', 'test'):
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    _check(source, split, x, y, images)
    # The labels are in range, so that both the shift and the conversion are exact.
    labels = (y - images.first_label).astype(np.int32)
    splits.append(Split(x.reshape(-1, *images.shape), labels))
  return splits[0], splits[1], source


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
  low, high = images.first_label, images.first_label + images.num_classes - 1
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
    arrays[f'x_{split}'], arrays[f'y_{split}'] = x, part['label']
  return arrays
