"""What commands do before TensorFlow is imported, which takes seconds."""

import os
import warnings


def quietly() -> None:
  """Has TensorFlow and TFF say nothing as they start; a level that the user chose stays."""
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
