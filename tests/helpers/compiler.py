"""Whether this machine has the C++ compiler that the compiled LSTM needs."""

import shutil

import pytest

NEEDED = pytest.mark.skipif(shutil.which('g++') is None, reason='there is no C++ compiler (g++)')
