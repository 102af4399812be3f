"""The bench: a method beside the built-in ones on fixed problems; see docs/guide/bench.md."""
