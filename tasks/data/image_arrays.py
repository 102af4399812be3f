"""Centralised image sets: plain .npz arrays, or TensorFlow Datasets where no folder is named."""

import collections
import contextlib
import itertools
import os
import urllib.error
import urllib.request
from collections.abc import Sequence

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files as file_border, npz

Split = collections.namedtuple('Split', ['x', 'y'])
# Where TensorFlow Datasets downloads from.
_HOSTS = {
  'mnist': 'storage.googleapis.com',
  'emnist': 'www.itl.nist.gov',
  'cifar10': 'www.cs.toronto.edu',
  'cifar100': 'www.cs.toronto.edu',
}
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
  """Loads a training and a test split.

  Args:
    data_dir: A folder with one of the files; None uses TensorFlow Datasets.
    files: File names in the order of preference, each with the arrays x_train, y_train, x_test
      and y_test: uint8 images and integer labels. A file that ends in _jpeg.npz is as
      `decode_jpeg` describes.
    tfds_name: The set's name in TensorFlow Datasets.
    image_shape: The shape of an image.
    num_classes: Classes; every label of both splits is one of them.
    first_label: The smallest label in the source; labels are shifted to start with 0.

  Returns:
    The training split and the test split, each uint8 [n, *image_shape] and int32 [n], and what
    served them.

  Raises:
    DataError: If nothing serves or what serves is not of the expected form.
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
    is_jpeg = source.endswith('_jpeg.npz')
    arrays = decode_jpeg(source, image_shape) if is_jpeg else npz.read(source, _KEYS)
  splits = []
  for split in ('train', 'test'):
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    _check_images(f'{source}: x_{split}', x, image_shape)
    _check_labels(f'{source}: y_{split}', y, len(x), first_label, num_classes)
    # Shifted before narrowing: both are exact, for the labels are in range.
    splits.append(Split(x.reshape(-1, *image_shape), (y - first_label).astype(np.int32)))
  return splits[0], splits[1], source


def _check_images(name: str, x: np.ndarray, image_shape: Sequence[int]) -> None:
  if x.size == 0:
    raise errors.DataError(f'{name} is empty; it must hold one image or more')
  if x.dtype != np.uint8:
    raise errors.DataError(f'{name} is of {x.dtype}; it must be of uint8, pixels from 0 to 255')
  if list(x.shape[1:]) not in _layouts(image_shape):
    raise errors.DataError(
      f'{name} has shape {list(x.shape)}; it must be images of shape '
      f'{list(image_shape)} (height, width, channels)'
    )


def _check_labels(
  name: str, y: np.ndarray, num_images: int, first_label: int, num_classes: int
) -> None:
  if y.size == 0:
    raise errors.DataError(f'{name} is empty; it must hold one label or more')
  if y.dtype.kind not in 'iu':
    raise errors.DataError(f'{name} is of {y.dtype}; labels must be of whole numbers such as int32')
  if y.shape != (num_images,):
    raise errors.DataError(
      f'{name} has shape {list(y.shape)} for {num_images} images; each needs one label'
    )
  last = first_label + num_classes - 1
  outside = np.flatnonzero((y < first_label) | (y > last))
  if len(outside):
    raise errors.DataError(
      f'{name}, row {outside[0]}: the label is {y[outside[0]]}; it must be from {first_label} to '
      f'{last} ({len(outside)} such rows)'
    )


def _layouts(image_shape: Sequence[int]) -> list[list[int]]:
  """The shapes that can only mean such an image: several channels might come in any order."""
  height, width, channels = image_shape
  if channels > 1:
    return [[height, width, channels]]
  return [[height, width, 1], [height, width], [height * width]]


def decode_jpeg(path: str, image_shape: Sequence[int]) -> dict[str, np.ndarray]:
  """Reads an .npz file whose images are JPEG bytes, one after the other.

  Args:
    path: The file, with jpeg_* (uint8 [bytes]), offsets_* (int [images + 1], where each image
      begins, and the end) and y_* for train and test.
    image_shape: The shape of every image.

  Returns:
    x_train, y_train, x_test and y_test.

  Raises:
    DataError: If the file is damaged.
  """
  keys = [f'{k}_{s}' for s in ('train', 'test') for k in ('jpeg', 'offsets', 'y')]
  arrays, out = npz.read(path, keys), {}
  for split in ('train', 'test'):
    data, offsets = arrays[f'jpeg_{split}'], arrays[f'offsets_{split}']
    if data.dtype != np.uint8 or data.ndim != 1:
      raise errors.DataError(
        f'{path}: jpeg_{split} is {list(data.shape)} of {data.dtype}; it must be [bytes] of uint8'
      )
    _check_offsets(f'{path}: offsets_{split}', offsets, len(data))
    out[f'x_{split}'] = _decode_all(f'{path}: jpeg_{split}', data.tobytes(), offsets, image_shape)
    out[f'y_{split}'] = arrays[f'y_{split}']
  return out


def _check_offsets(name: str, offsets: np.ndarray, num_bytes: int) -> None:
  if offsets.dtype.kind not in 'iu' or offsets.ndim != 1 or len(offsets) < 2:
    raise errors.DataError(
      f'{name} is {list(offsets.shape)} of {offsets.dtype}; it must be whole numbers, one more '
      'than images'
    )
  wrong = np.flatnonzero((offsets[1:] <= offsets[:-1]) | (offsets[1:] > num_bytes))
  if offsets[0] < 0 or len(wrong):
    row = wrong[0] + 1 if len(wrong) else 0
    raise errors.DataError(
      f'{name}, row {row}: {offsets[row]} does not follow the row before within the {num_bytes} '
      'bytes of images'
    )


def _decode_all(
  name: str, data: bytes, offsets: np.ndarray, image_shape: Sequence[int]
) -> np.ndarray:
  import tensorflow as tf

  images = np.empty([len(offsets) - 1, *image_shape], np.uint8)
  for row, (start, end) in enumerate(itertools.pairwise(offsets.tolist())):
    try:
      # An image says its size itself: it is read before so much memory is taken.
      shape = tf.io.extract_jpeg_shape(data[start:end]).numpy().tolist()
      if shape != list(image_shape):
        raise errors.DataError(
          f'{name}, row {row}: the image has shape {shape}; it must have {list(image_shape)}'
        )
      images[row] = tf.io.decode_jpeg(data[start:end], channels=3).numpy()
    except tf.errors.OpError as e:
      raise errors.DataError(
        f'{name}, row {row}: the image cannot be decoded ({e.message}); fetch the file again'
      ) from None
  return images


def _from_tfds(name: str, files: Sequence[str]) -> dict[str, np.ndarray]:
  fix = f'try again, or name a folder that has {" or ".join(files)}'
  with file_border.border(f'{name} of TensorFlow Datasets', fix):
    import tensorflow_datasets as tfds

    builder = tfds.builder(name)
    if not builder.is_prepared():
      downloads = builder.data_dir_root / 'downloads'
      # Archives of an earlier download, perhaps from another machine, need no host.
      if not (downloads.exists() and any(path.is_file() for path in downloads.iterdir())):
        _check_reachable(_HOSTS[name.split('/')[0]])
      builder.download_and_prepare()
    splits = tfds.as_numpy(builder.as_dataset(split=['train', 'test'], batch_size=-1))
  arrays = {}
  for split, part in zip(('train', 'test'), splits):
    x = part['image']
    if name.startswith('emnist'):
      x = np.swapaxes(x, 1, 2)  # EMNIST's own files hold the images transposed.
    arrays[f'x_{split}'], arrays[f'y_{split}'] = x, part['label']
  return arrays


def _check_reachable(host: str) -> None:
  """OSError if a host does not answer; TensorFlow Datasets would try again for minutes."""
  with contextlib.suppress(urllib.error.HTTPError):  # It answers.
    urllib.request.urlopen(f'https://{host}', timeout=_SECONDS).close()
