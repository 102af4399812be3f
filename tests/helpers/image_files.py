"""Small .npz files of images as the image tasks read them, and .npy bytes with any header."""

import io
import zipfile

import numpy as np

# The number of images of each class in the two splits, which differ in size and brightness.
TRAIN_PER_CLASS = 12
TEST_PER_CLASS = 3


def write(path, **changes):
  """Writes four and two 28 x 28 images, some arrays changed or left out; returns the path."""
  arrays = {
    'x_train': np.zeros([4, 28, 28], np.uint8),
    'y_train': np.arange(4),
    'x_test': np.zeros([2, 28, 28], np.uint8),
    'y_test': np.arange(2),
  }
  arrays.update(changes)
  np.savez(path, **{k: v for k, v in arrays.items() if v is not None})
  return str(path)


def write_classes(path, num_classes, shape=(28, 28), first_label=0):
  """Writes images of all classes; returns the training labels, int64 [n], in a random order.

  A pixel is the image's row, plus 200 in the test split, so that no statistic of the two agrees.
  """
  rng = np.random.default_rng(5)
  labels = {
    split: rng.permutation(np.repeat(np.arange(num_classes) + first_label, n))
    for split, n in (('train', TRAIN_PER_CLASS), ('test', TEST_PER_CLASS))
  }
  x = {
    'train': rng.integers(0, 200, [len(labels['train']), *shape]),
    'test': rng.integers(200, 256, [len(labels['test']), *shape]),
  }
  np.savez(
    path, **{f'x_{s}': x[s].astype(np.uint8) for s in x}, **{f'y_{s}': labels[s] for s in labels}
  )
  return labels['train']


def npy(header, body=b'', version=1):
  """The bytes of an .npy file with this header, whatever it says."""
  text = header.encode()
  length = len(text).to_bytes(2 if version == 1 else 4, 'little')
  return b'\x93NUMPY' + bytes([version, 0]) + length + text + body


def archive(path, members):
  """Writes a zip archive: name of an array -> bytes of its .npy file."""
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as z:
    for name, content in members.items():
      z.writestr(f'{name}.npy', content)
  return str(path)


def npy_bytes(array):
  """What `np.save` writes."""
  file = io.BytesIO()
  np.save(file, array)
  return file.getvalue()
