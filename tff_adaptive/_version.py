"""The version, which setup.py, the documentation and CITATION.cff take from here."""

__version__ = '0.1.0'
