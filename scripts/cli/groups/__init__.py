"""The groups of settings. Each has its flags, their help, its checks, and builds its objects."""
