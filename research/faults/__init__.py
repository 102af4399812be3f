"""Tools that break things on purpose; the ones that the tests use too are in tests/faults."""
