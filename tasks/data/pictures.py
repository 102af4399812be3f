"""Reads pictures. This is the only place that does: all of them are treated in the same way.

A picture is turned as its EXIF orientation says, as viewers do. Behind transparent pixels is white.
Of a picture with several frames the first is read.
"""

from collections.abc import Iterable
from typing import Any, BinaryIO

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files

# Pillow chooses the format by the content, whatever the name. Formats for which it would call
# another program, such as Ghostscript for EPS, are not among these.
_FORMATS = (
  *('AVIF', 'BMP', 'DIB', 'GIF', 'ICO', 'JPEG', 'JPEG2000', 'PCX', 'PNG', 'PPM', 'QOI', 'SGI'),
  *('SUN', 'TGA', 'TIFF', 'WEBP', 'XBM', 'XPM'),
)
_MODES = {1: 'L', 3: 'RGB'}  # Pillow's, by number of channels.
_GREY = ('1', 'L', 'LA', 'La')


def read_picture(
  file: str | BinaryIO, size: tuple[int, int] | None = None, channels: int = 3
) -> np.ndarray:
  """Reads a picture as `from_image_folder` does: upright, with white behind transparent pixels.

  Args:
    file: A path, or an open binary file.
    size: Height and width to which the picture is resized. None leaves it as it is.
    channels: 3 for colour, 1 for grey.

  Returns:
    uint8 [height, width, channels].

  Raises:
    DataError: If the file cannot be read, or has more than 8 bits a channel.
  """
  check_options(size, channels)
  if isinstance(file, str):
    file = files.existing(file)
    what = file
  else:
    what = 'the picture'
  with files.border(what, 'remove it, or write it again'):
    return _pixels(_opened(file), size, channels)


def read_pictures(
  sources: Iterable[tuple[str, str | BinaryIO]],
  size: tuple[int, int] | None,
  channels: int | None,
) -> np.ndarray:
  """Reads pictures of one size, or resizes them to one.

  Args:
    sources: For each picture a name for messages, and a path or an open binary file.
    size: Height and width of all. None if they have equal sizes.
    channels: 3 for colour, 1 for grey. None means 1 if all are grey.

  Returns:
    uint8 [n, height, width, channels].

  Raises:
    DataError: If one cannot be read, or they differ in size although `size` is None.
  """
  check_options(size, channels)
  pictures: list[np.ndarray] = []
  first = ''
  for name, file in sources:
    with files.border(name, 'remove it, or write it again'):
      image = _opened(file)
      depth = channels
      if depth is None:
        depth = len(image.mode)  # 'L' or 'RGB'
      pictures.append(_pixels(image, size, depth))
    first = first or name
    if pictures[-1].shape[:2] != pictures[0].shape[:2]:
      raise errors.DataError(
        f'{name} has {list(pictures[-1].shape[:2])} pixels, {first} has '
        f'{list(pictures[0].shape[:2])}: give size=(height, width)'
      )
  most = max(picture.shape[-1] for picture in pictures)
  # Grey is a colour of three equal parts.
  return np.stack([np.repeat(p, most // p.shape[-1], -1) for p in pictures])


def check_options(size: Any, channels: Any) -> None:
  """Raises DataError if `size` is no height and width, or `channels` is not 1, 3 or None."""
  if channels is not None and channels not in _MODES:
    raise errors.DataError(f'channels is {channels!r:.80}; it must be 1 (grey) or 3 (colours)')
  if size is None:
    return
  is_pair = isinstance(size, (tuple, list)) and len(size) == 2
  if not is_pair or not all(isinstance(n, (int, np.integer)) and n > 0 for n in size):
    raise errors.DataError(f'size is {size!r:.80}; it must be (height, width), such as (32, 32)')


def _opened(file: str | BinaryIO) -> Any:
  """Returns a picture of Pillow, upright and opaque, of the mode L if it is grey, else RGB."""
  from PIL import Image, ImageOps  # Slow to import and needed here only.

  if isinstance(file, str):
    files.existing(file)  # Opening a pipe would wait for data.
  Image.init()
  formats = [name for name in _FORMATS if name in Image.OPEN]  # Pillow may lack a library.
  with Image.open(file, formats=formats) as image:
    if image.mode[0] in 'IF':
      raise ValueError(f'its mode is {image.mode}: a conversion to 8 bits would clip its pixels')
    is_grey = image.mode in _GREY
    upright: Any = ImageOps.exif_transpose(image)
    if upright.has_transparency_data:
      white = Image.new('RGBA', upright.size, 'white')
      upright = Image.alpha_composite(white, upright.convert('RGBA'))
    return upright.convert('L' if is_grey else 'RGB')


def _pixels(image: Any, size: tuple[int, int] | None, channels: int) -> np.ndarray:
  image = image.convert(_MODES[channels])
  if size is not None:
    image = image.resize((size[1], size[0]))
  return np.asarray(image).reshape(image.height, image.width, channels)
