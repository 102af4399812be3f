"""The experiments behind results/, one command each."""
