"""Pictures: upright, opaque, of one scale, and no program called to read them."""

import io
import os
import subprocess

import numpy as np
import PIL
import pytest
from PIL import Image

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks.data import pictures

UPRIGHT = np.zeros([8, 12, 3], np.uint8)
UPRIGHT[:4, :, 0] = 200
UPRIGHT[:, :3, 1] = 100
# How the pixels lie in the file for an EXIF orientation.
STORED = {
  1: UPRIGHT,
  2: UPRIGHT[:, ::-1],
  3: UPRIGHT[::-1, ::-1],
  4: UPRIGHT[::-1],
  5: UPRIGHT.swapaxes(0, 1),
  6: np.rot90(UPRIGHT, 1),
  7: np.rot90(UPRIGHT, 2).swapaxes(0, 1),
  8: np.rot90(UPRIGHT, -1),
}


def file_of(image, kind='PNG', **options):
  file = io.BytesIO()
  image.save(file, kind, **options)
  file.seek(0)
  return file


@pytest.mark.parametrize('kind', ['PNG', 'TIFF'])
@pytest.mark.parametrize('orientation', STORED)
def test_a_picture_is_turned_as_its_orientation_says(orientation, kind):
  exif = Image.Exif()
  exif[0x0112] = orientation
  image = Image.fromarray(np.ascontiguousarray(STORED[orientation]))
  read = tasks.read_picture(file_of(image, kind, exif=exif))
  np.testing.assert_array_equal(read, UPRIGHT)


@pytest.mark.parametrize('channels', [1, 3])
@pytest.mark.parametrize('mode', ['RGBA', 'LA', 'PA', 'P', 'L', 'RGB'])
def test_behind_transparent_pixels_is_white(mode, channels):
  """Black ink of alpha 255, 51 and 0 on white: 0, 1 - 51/255 = 0.8 of 255, and 255."""
  alpha = np.array([[255, 51, 0]], np.uint8)
  expected = [0, 204, 255]
  options = {}
  if mode in ('RGBA', 'LA'):
    black = Image.new(mode[:-1], (3, 1))
    black.putalpha(Image.fromarray(alpha))
    image = black
    kind = 'PNG'
  elif mode == 'PA':
    image = Image.fromarray(np.uint8([[0, 0, 1]]), 'P')
    image.putpalette([0, 0, 0, 9, 9, 9])
    options = {'transparency': bytes([255, 0])}
    kind = 'PNG'
    expected = [0, 0, 255]
  elif mode == 'P':
    image = Image.fromarray(np.uint8([[0, 0, 1]]), 'P')
    image.putpalette([0, 0, 0, 0, 0, 0])
    options = {'transparency': 1}
    kind = 'GIF'
    expected = [0, 0, 255]
  else:  # One colour is transparent, here a grey.
    image = Image.fromarray(np.uint8([[0, 0, 9]])).convert(mode)
    options = {'transparency': 9 if mode == 'L' else (9, 9, 9)}
    kind = 'PNG'
    expected = [0, 0, 255]
  read = tasks.read_picture(file_of(image, kind, **options), channels=channels)
  np.testing.assert_array_equal(read, np.repeat(np.uint8(expected)[None, :, None], channels, -1))


# CPython 3.10 has Pillow 12.
WRITES_YCBCR = pytest.mark.skipif(
  int(PIL.__version__.partition('.')[0]) < 13,
  reason='Pillow before 13 cannot read the YCbCr without compression that it writes',
)


@pytest.mark.parametrize(
  'kind, mode',
  [
    ('TIFF', 'CMYK'),
    pytest.param('TIFF', 'YCbCr', marks=WRITES_YCBCR),
    ('PNG', '1'),
    ('PNG', 'P'),
  ],
)
def test_pictures_of_all_modes_have_one_meaning_beside_each_other(kind, mode):
  """White is 255, and black 0, whatever the mode."""
  half = Image.new('L', (4, 2), 'white')
  half.paste(0, (0, 0, 2, 2))
  files = [('a', file_of(half)), ('b', file_of(half.convert('RGB').convert(mode), kind))]
  read = pictures.read_pictures(files, None, None)
  channels = 1 if mode == '1' else 3
  assert read.shape == (2, 2, 4, channels)
  np.testing.assert_allclose(read[1].astype(int), read[0], atol=1)  # YCbCr rounds.
  np.testing.assert_array_equal(read[0, 0, :, 0], [0, 0, 255, 255])


def test_no_program_is_called_whatever_a_file_is_named(tmp_path, monkeypatch):
  calls = []
  monkeypatch.setattr(subprocess, 'check_call', lambda *a, **k: calls.append(a))
  monkeypatch.setattr(subprocess, 'Popen', lambda *a, **k: calls.append(a))
  lines = [
    '%!PS-Adobe-3.0 EPSF-3.0',
    '%%BoundingBox: 0 0 10 10',
    '%%EndComments',
    'showpage',
    '%%EOF',
  ]
  for name in ('0.png', '0.eps'):
    (tmp_path / name).write_text('\n'.join(lines) + '\n')
    with Image.open(tmp_path / name) as image:  # Pillow itself knows it.
      assert image.format == 'EPS'
    with pytest.raises(
      tasks.DataError, match=f'{name} cannot be read .*cannot identify image file'
    ):
      tasks.read_picture(str(tmp_path / name))
  assert not calls


@pytest.mark.parametrize('size', [5, (4,), (4, 0), (4.0, 4.0), '44'])
def test_a_size_is_a_height_and_a_width(size):
  with pytest.raises(tasks.DataError, match=r'size is .*; it must be \(height, width\)'):
    tasks.read_picture(file_of(Image.new('L', (2, 2))), size)


def test_a_pipe_in_a_folder_of_pictures_is_refused(tmp_path):
  folder = tmp_path / 'client' / 'class'
  folder.mkdir(parents=True)
  os.mkfifo(folder / 'a.png')
  with pytest.raises(tasks.DataError, match=r'there is no file .*a\.png'):
    tasks.from_image_folder(str(tmp_path))
