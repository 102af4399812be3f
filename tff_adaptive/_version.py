"""The version; setup.py, the documentation and CITATION.cff take it from here."""

__version__ = '0.1.0'
