"""Tasks on Hugging Face's data sets."""

import pathlib

import numpy as np
import pytest
from PIL import Image

import tff_adaptive_tasks as tasks

datasets = pytest.importorskip('datasets')

CLIENTS = np.repeat(['ann', 'bob', 'cy', 'di', 'eve'], 4)
X = np.arange(20 * 6, dtype=np.float32).reshape(20, 2, 3)
LABELS = np.arange(20) % 3
NAMES = ['cat', 'dog', 'emu']


def images():
  features = datasets.Features(
    x=datasets.Array2D((2, 3), 'float32'),
    label=datasets.ClassLabel(names=NAMES),
    writer=datasets.Value('string'),
  )
  rows = {'x': X, 'label': LABELS, 'writer': CLIENTS}
  return datasets.Dataset.from_dict(rows, features=features)


def table():
  rows = {'age': np.arange(20), 'smoker': ['yes', 'no'] * 10, 'outcome': LABELS / 2}
  return datasets.Dataset.from_dict({**rows, 'hospital': np.arange(20) // 4})


def two(*x, last=-1):
  features = datasets.Features(
    x=datasets.Sequence(datasets.Value('float32')),
    label=datasets.ClassLabel(names=['no', 'yes']),
    writer=datasets.Value('string'),
  )
  return datasets.Dataset.from_dict({'x': x, 'label': [0, last], 'writer': ['a', 'b']}, features)


def tags(*labels):
  rows = {'x': [[1.0], [2.0]], 'age': [1, 2], 'label': labels, 'writer': ['a', 'b']}
  return datasets.Dataset.from_dict(rows)


def test_the_same_files_are_the_same_inputs_as_of_a_folder(tmp_path):
  """Turned, transparent, grey and with a palette; as bytes in the table too."""
  rng = np.random.default_rng(0)
  exif = Image.Exif()
  exif[0x0112] = 3
  pictures = [
    (Image.fromarray(rng.integers(0, 256, [4, 5, 3], np.uint8)), 'jpg', {'exif': exif}),
    (Image.fromarray(rng.integers(0, 256, [4, 5, 4], np.uint8)), 'png', {}),
    (Image.fromarray(rng.integers(0, 256, [4, 5], np.uint8)), 'png', {}),
    (Image.fromarray(rng.integers(0, 256, [4, 5, 3], np.uint8)).quantize(6), 'gif', {}),
    (Image.fromarray(rng.integers(0, 256, [4, 5, 3], np.uint8)).convert('CMYK'), 'tif', {}),
    (Image.fromarray(rng.integers(0, 2, [4, 5], np.uint8) * 255).convert('1'), 'png', {}),
  ]
  rows = {'picture': [], 'label': [], 'writer': []}
  for writer in 'ab':
    for i, (picture, ending, saving) in enumerate(pictures):
      path = tmp_path / writer / 'xy'[i % 2] / f'{i}.{ending}'
      path.parent.mkdir(parents=True, exist_ok=True)
      picture.save(path, **saving)
      rows['picture'].append(str(path))
      rows['label'].append('xy'[i % 2])
      rows['writer'].append(writer)
  folder = tasks.from_image_folder(str(tmp_path), validation=0.5).train
  features = datasets.Features(
    picture=datasets.Image(), label=datasets.Value('string'), writer=datasets.Value('string')
  )
  (client,) = folder.client_ids
  expected = {x.tobytes() for x in folder.load(client)['x']}
  assert len(expected) == len(pictures)
  contents = [{'bytes': pathlib.Path(path).read_bytes(), 'path': None} for path in rows['picture']]
  for column in (rows['picture'], contents):
    data = datasets.Dataset.from_dict({**rows, 'picture': column}, features=features)
    task = tasks.from_huggingface(data, 'writer', 'label', validation=0.5)
    assert {x.tobytes() for x in task.train.load(client)['x']} == expected


def test_a_column_of_arrays_and_class_labels():
  task = tasks.from_huggingface(images(), 'writer', 'label', features='x')
  assert len(task.train.client_ids) == 4
  assert task.preparation.classes == tuple(NAMES)
  for client in task.train.client_ids:
    loaded = task.train.load(client)
    rows = np.isin(CLIENTS, client)
    np.testing.assert_array_equal(loaded['x'], X[rows])
    np.testing.assert_array_equal(loaded['y'], LABELS[rows])


def test_columns_of_numbers_and_texts():
  task = tasks.from_huggingface(table(), 'hospital', 'outcome', standardise=False)
  first = task.train.load(task.train.client_ids[0])
  assert first['x'].shape == (4, 3)  # Age, and an input for each of the two texts.
  rows = 4 * int(task.train.client_ids[0]) + np.arange(4)
  np.testing.assert_array_equal(first['x'][:, 0], rows)
  np.testing.assert_allclose(first['y'], rows % 3 / 2)


@pytest.mark.parametrize('colors', [0, 6])  # Of a palette.
def test_a_column_of_images_is_found_by_itself(colors):
  features = datasets.Features(
    picture=datasets.Image(),
    label=datasets.ClassLabel(names=NAMES),
    writer=datasets.Value('string'),
    hsf=datasets.Value('int64'),
  )
  pixels = np.arange(20 * 6, dtype=np.uint8).reshape(20, 2, 3)
  pictures = [Image.fromarray(p).quantize(6) if colors else Image.fromarray(p) for p in pixels]
  rows = {'picture': pictures, 'label': LABELS, 'writer': CLIENTS, 'hsf': LABELS}
  data = datasets.Dataset.from_dict(rows, features=features)
  task = tasks.from_huggingface(data, 'writer', 'label', validation_by='examples')
  bob = task.train.load('bob')['x'].reshape(3, 2, 3, -1)[..., 0]
  assert {x.tobytes() for x in bob} < {x.tobytes() for x in np.float32(pixels[4:8]) / 255}
  white = np.full([1, *task.preparation.picture], 255, np.uint8)
  assert task.preparation.picture[:2] == (2, 3)
  np.testing.assert_array_equal(task.preparation(white), np.ones(white.shape))
  small = tasks.from_huggingface(data, 'writer', 'label', size=(4, 5), channels=1)
  assert small.train.load_all()['x'].shape[1:] == (4, 5, 1)
  two = datasets.concatenate_datasets(
    [data, data.select_columns('picture').rename_column('picture', 'other')], axis=1
  )
  with pytest.raises(tasks.DataError, match='the images picture, other: name one by features='):
    tasks.from_huggingface(two, 'writer', 'label')


@pytest.mark.parametrize(
  'dataset, options, message',
  [
    (lambda: datasets.DatasetDict(train=images()), {}, 'a DatasetDict; give a datasets.Dataset'),
    (lambda: images().select([]), {}, 'with rows'),
    (images, {'client': 'who'}, "no column 'who'; it has: x, label, writer"),
    (
      lambda: two([1.0], [1.0, 2.0], last=1),
      {},
      r'must have the same shape.*to one shape by dataset',
    ),
    (lambda: two([1.0], [2.0]), {}, "'label' is empty in row 1"),  # The label -1 has no name.
    (images, {'features': 5}, 'features is 5; give the names of columns'),
    (images, {'features': ['x', 5]}, 'features is .* give the names of columns'),
    (images, {'client': 5}, 'client is 5; it must be a text'),
    (images, {'size': (4, 4)}, 'size= is for a column of images: leave it out'),
    (images, {'missing': 'drop'}, 'missing= is for columns of a table: leave it out'),
    (lambda: tags([0, 1], [1]), {}, 'y has lists of different lengths: give lists of one length'),
    (lambda: tags([0, 1], [1]), {'features': ['age']}, 'y has lists of different lengths'),
    (lambda: tags([0, 1], [1, None]), {}, 'labels have dtype object'),
  ],
)
def test_what_cannot_be_used_is_refused(dataset, options, message):
  given = {'client': 'writer', 'label': 'label', 'features': 'x', **options}
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_huggingface(dataset(), **given)
