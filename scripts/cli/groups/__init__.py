"""The groups of settings. A group declares flags, checks their values and builds objects."""
