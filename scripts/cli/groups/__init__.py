"""The groups of settings: each holds its flags, their help, its checks and what it builds."""
