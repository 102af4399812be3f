"""Helpers that several packages use. They are not part of the public API."""
