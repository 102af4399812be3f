"""Tasks on folders of pictures."""

import unicodedata

import numpy as np
import pytest
from PIL import Image

import tff_adaptive_tasks as tasks

PIXELS = np.random.default_rng(0).integers(0, 256, [3, 2, 4, 6, 3], np.uint8)


def write(folder):
  """Of 3 clients 2 pictures each of 4 x 6 pixels, of a class each."""
  for client, pictures in zip('abc', PIXELS):
    for label, pixels in zip(('cat', 'dog'), pictures):
      (folder / client / label).mkdir(parents=True)
      Image.fromarray(pixels).save(folder / client / label / 'one.png')
  (folder / 'a' / 'cat' / '.hidden').write_text('no picture')
  return str(folder)


def test_a_folder_of_each_client_becomes_a_task_of_pictures_of_a_size_or_grey(tmp_path):
  folder = write(tmp_path)
  task = tasks.from_image_folder(folder, validation=0.34)
  assert task.source == folder
  assert task.preparation.classes == ('cat', 'dog')
  assert len(task.train.client_ids) == 2
  for client in task.train.client_ids:
    pixels_of_client = PIXELS['abc'.index(client)]
    np.testing.assert_array_equal(
      task.train.load(client)['x'], pixels_of_client.astype(np.float32) / 255
    )
    np.testing.assert_array_equal(task.train.load(client)['y'], [0, 1])
    np.testing.assert_array_equal(task.preparation(pixels_of_client), task.train.load(client)['x'])
  Image.new('RGB', (5, 5), 'white').save(tmp_path / 'a' / 'cat' / 'two.jpg')
  with pytest.raises(tasks.DataError, match=r'two.jpg has \[5, 5\] pixels, .*one.png has \[4, 6\]'):
    tasks.from_image_folder(folder)
  task = tasks.from_image_folder(folder, size=(2, 3), channels=1, validation_by='examples')
  first = task.train.load('b')['x']
  assert first.shape[1:] == (2, 3, 1)
  small = Image.fromarray(PIXELS[1, 0]).convert('L').resize((3, 2))
  np.testing.assert_allclose(first[0, ..., 0], np.asarray(small) / np.float32(255))


def test_names_that_look_alike_are_one_and_what_systems_add_is_no_client(tmp_path):
  for i, (client, pixels) in enumerate(zip(('Zoë', 'Zoë', 'bob'), PIXELS)):
    form = ('NFC', 'NFD')[i % 2]
    for label, pixel in zip(('café', 'bar'), pixels):
      place = tmp_path / unicodedata.normalize(form, client) / unicodedata.normalize(form, label)
      place.mkdir(parents=True)
      Image.fromarray(pixel).save(place / f'{i}.png')
  for name in ('__MACOSX', '@eaDir'):
    (tmp_path / name / 'bob' / 'bar').mkdir(parents=True)
    (tmp_path / name / 'bob' / 'bar' / 'x.png').write_text('no picture')
    (tmp_path / 'bob' / name).mkdir()
    (tmp_path / 'bob' / name / 'x.png').write_text('no picture')
  (tmp_path / 'bob' / 'bar' / 'Thumbs.db').write_text('no picture')
  task = tasks.from_image_folder(str(tmp_path), validation_by='examples', validation=0.4)
  assert task.preparation.classes == ('bar', 'café')
  assert task.train.client_ids == ['Zoë', 'bob']
  assert len(task.train.load_all()['y']) + len(task.validation['y']) == 6


def test_a_level_too_many_or_missing_and_no_folder_are_refused(tmp_path):
  write(tmp_path / 'train')
  with pytest.raises(tasks.DataError, match=r'is a folder.*CLIENT/CLASS/NAME.*give .*/train, or'):
    tasks.from_image_folder(str(tmp_path))
  with pytest.raises(
    tasks.DataError, match=r'has no pictures.* \(there is .*one.png: a level is mis'
  ):
    tasks.from_image_folder(str(tmp_path / 'train' / 'a'))
  with pytest.raises(tasks.DataError, match=r'there is no folder .*none'):
    tasks.from_image_folder(str(tmp_path / 'none'))
  with pytest.raises(tasks.DataError, match='folder is 5; it must be a path'):
    tasks.from_image_folder(5)
  with pytest.raises(tasks.DataError, match=r'size is 5; it must be \(height, width\)'):
    tasks.from_image_folder(str(tmp_path / 'train'), size=5)


def test_what_is_no_picture_or_in_another_place_and_other_channels_are_refused(tmp_path):
  (tmp_path / 'x.png').write_text('no client')
  with pytest.raises(tasks.DataError, match='has no pictures: it must have files'):
    tasks.from_image_folder(str(tmp_path))
  (tmp_path / 'a' / 'cat').mkdir(parents=True)
  (tmp_path / 'a' / 'cat' / 'x.png').write_text('no picture')
  with pytest.raises(tasks.DataError, match=r'x.png cannot be read .*cannot identify.*remove it'):
    tasks.from_image_folder(str(tmp_path))
  Image.fromarray(np.full([2, 2], 40_000, np.uint16)).save(tmp_path / 'a' / 'cat' / 'x.png')
  with pytest.raises(tasks.DataError, match=r'x.png cannot be read .*its mode is I;16'):
    tasks.from_image_folder(str(tmp_path))
  with pytest.raises(tasks.DataError, match='channels is 2; it must be 1'):
    tasks.from_image_folder(str(tmp_path), channels=2)
