"""Whether this machine has the C++ compiler that the compiled LSTM needs."""

import shutil

import pytest

NEEDED = pytest.mark.skipif(not shutil.which('g++'), reason='there is no C++ compiler (g++)')
