"""The processors and GPUs that a run uses. Importing this package configures nothing."""
