"""The version, which setup.py and the documentation take from here; CITATION.cff repeats it."""

__version__ = '0.2.0'
