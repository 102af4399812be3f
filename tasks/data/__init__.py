"""Sources of examples, and partitions of examples over clients."""
