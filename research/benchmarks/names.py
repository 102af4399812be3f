"""What the benchmark calls the ways to do a round."""

VARIANTS = {
  'stock_native': "TFF's stock process, native context",
  'stock_graph': "TFF's stock process, graph engine",
  'ours_native': 'this project, native context',
  'ours_graph': 'this project, graph engine',
  'ours_subrounds': 'this project, the cohort in four parts, as Ray workers get it',
  'ours_ray1': 'this project, one Ray worker on this machine',
  'ours_ray2': 'this project, two',
  'ours_ray4': 'this project, four',
  'hand': 'loop by hand',
}
OPTIONS = {  # Of ours_graph, as in ours_graph+xla+bfloat16.
  'xla': 'local steps compiled',
  'lstm': 'LSTMs as compiled operations (W3)',
  'bfloat16': 'mixed precision',
  'float16': 'the same',
  'single': 'clients one after another',
  'together': 'the whole cohort in batched operations',
  'tensors': "results as TensorFlow's tensors",
  'top_k': 'clients send the largest 5 % of an update',
  'quantize': 'clients send 8 bits of a number, rounded to the nearest',
  'ledger': 'what --ledger measures of each client',
  'full_ledger': 'what --full_ledger measures too',
}


def split_variant(variant: str) -> tuple[str, list[str]]:
  """Splits a variant into its name and its options; ValueError if there is no such variant."""
  name, *options = variant.split('+')
  if name not in VARIANTS or (options and name != 'ours_graph') or not {*options} <= {*OPTIONS}:
    raise ValueError(
      f'unknown variant {variant!r}; there are {", ".join(VARIANTS)}, ours_graph also with'
      f' +{", +".join(OPTIONS)}'
    )
  return name, options
