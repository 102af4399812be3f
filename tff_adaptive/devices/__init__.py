"""Which processors and GPUs compute what; pure until it is used."""
