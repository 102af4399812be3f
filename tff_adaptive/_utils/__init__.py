"""Helpers without a subject of their own; not part of the public API."""
