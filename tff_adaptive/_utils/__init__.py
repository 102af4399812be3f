"""Helpers of several packages, which are not part of the public API."""
