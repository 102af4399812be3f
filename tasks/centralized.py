"""Centralised image sets: plain .npz arrays, or TensorFlow Datasets where no folder is named."""

import collections
import logging
import os
import zipfile
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tasks import errors

Split = collections.namedtuple('Split', ['x', 'y'])
_KEYS = ('x_train', 'y_train', 'x_test', 'y_test')


def load(
  data_dir: Optional[str],
  files: Sequence[str],
  tfds_name: str,
  image_shape: Sequence[int],
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
    arrays = decode_jpeg(source) if source.endswith('_jpeg.npz') else read_npz(source, _KEYS)
  splits = []
  for split in ('train', 'test'):
    x, y = arrays[f'x_{split}'], arrays[f'y_{split}']
    for name, array in ((f'x_{split}', x), (f'y_{split}', y)):
      if array.size == 0:
        raise errors.DataError(f'{source}: {name} is empty; it must hold one example or more')
    if x.dtype != np.uint8:
      raise errors.DataError(
        f'{source}: x_{split} is of {x.dtype}; it must be of uint8, pixels from 0 to 255'
      )
    if list(x.shape[1:]) not in _layouts(image_shape):
      raise errors.DataError(
        f'{source}: x_{split} has shape {list(x.shape)}; it must be images of shape '
        f'{list(image_shape)} (height, width, channels)'
      )
    if y.dtype.kind not in 'iu':
      raise errors.DataError(
        f'{source}: y_{split} is of {y.dtype}; labels must be of whole numbers such as int32'
      )
    if y.shape != (len(x),):
      raise errors.DataError(
        f'{source}: y_{split} has shape {list(y.shape)} for {len(x)} images; each needs one label'
      )
    splits.append(Split(x.reshape(-1, *image_shape), y.astype(np.int32) - first_label))
  return splits[0], splits[1], source


def _layouts(image_shape):
  """The shapes that can only mean such an image: several channels might come in any order."""
  height, width, channels = image_shape
  if channels > 1:
    return [[height, width, channels]]
  return [[height, width, 1], [height, width], [height * width]]


def read_npz(path: str, keys: Sequence[str]) -> dict[str, np.ndarray]:
  """Reads arrays from an .npz file; DataError if it is damaged or one is missing."""
  try:
    with np.load(path, allow_pickle=False) as z:
      missing = [k for k in keys if k not in z.files]
      if missing:
        raise errors.DataError(f'{path} lacks {", ".join(missing)}; it has {", ".join(z.files)}')
      return {k: z[k] for k in keys}
  # A TypeError or AttributeError comes of a file that holds one array, no archive.
  except (OSError, EOFError, zipfile.BadZipFile, ValueError, TypeError, AttributeError) as e:
    if isinstance(e, errors.DataError):
      raise
    raise errors.DataError(f'{path} cannot be read ({e}); fetch it again') from None


def check_labels(split: Split, num_classes: int, source: str) -> None:
  """Refuses labels outside 0 to num_classes - 1."""
  low, high = int(split.y.min()), int(split.y.max())
  if not 0 <= low <= high < num_classes:
    raise errors.DataError(
      f'{source}: labels lie in {low} to {high} but must lie in 0 to {num_classes - 1}'
    )


def decode_jpeg(path: str) -> dict[str, np.ndarray]:
  """Reads an .npz file whose images are JPEG bytes, one after the other.

  Args:
    path: The file, with jpeg_*, offsets_* (one more than images) and y_* for train and test.

  Returns:
    x_train, y_train, x_test and y_test.

  Raises:
    DataError: If the file is damaged.
  """
  import tensorflow as tf

  keys = [f'{k}_{s}' for s in ('train', 'test') for k in ('jpeg', 'offsets', 'y')]
  arrays, out = read_npz(path, keys), {}
  for split in ('train', 'test'):
    data, ends = arrays[f'jpeg_{split}'].tobytes(), arrays[f'offsets_{split}']
    try:
      images = [
        tf.io.decode_jpeg(data[a:b], channels=3).numpy() for a, b in zip(ends[:-1], ends[1:])
      ]
    except tf.errors.OpError as e:
      raise errors.DataError(f'{path}: an image cannot be decoded ({e.message})') from None
    out[f'x_{split}'], out[f'y_{split}'] = np.stack(images), arrays[f'y_{split}']
  return out


def _from_tfds(name: str, files: Sequence[str]) -> dict[str, np.ndarray]:
  # It warns of each of many retries, for minutes where there is no network.
  logging.getLogger('urllib3').setLevel(logging.ERROR)
  try:
    import tensorflow_datasets as tfds

    splits = tfds.as_numpy(tfds.load(name, split=['train', 'test'], batch_size=-1))
  except Exception as e:  # Network, archive and file errors come in many classes.
    reason = ' '.join(str(e).split())[:300] or type(e).__name__
    raise errors.DataError(
      f'TensorFlow Datasets could not provide {name} ({reason}); try again, or give '
      f'--data_dir=FOLDER with {" or ".join(files)}'
    ) from e
  arrays = {}
  for split, part in zip(('train', 'test'), splits):
    x = part['image']
    if name.startswith('emnist'):
      x = np.swapaxes(x, 1, 2)  # EMNIST's own files hold the images transposed.
    arrays[f'x_{split}'], arrays[f'y_{split}'] = x, part['label']
  return arrays
