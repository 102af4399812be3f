"""What the benchmark calls the ways to do a round."""

from . import peer_environments

VARIANTS = {
  'stock_native': "TFF's stock process, native context",
  'stock_graph': "TFF's stock process, graph engine",
  'ours_native': 'this project, native context',
  'ours_graph': 'this project, graph engine',
  'ours_subrounds': 'this project, the cohort in four parts, as Ray workers get it',
  'ours_ray1': 'this project, one Ray worker on this machine',
  'ours_ray2': 'this project, two',
  'ours_ray4': 'this project, four',
  'run': 'rounds as training.train does them, of clients of unequal speed',
  'run_10': 'as many updates in rounds of 10 clients',
  **{f'run_buffered{b}': f'as many updates with a buffer of {b}' for b in (50, 10, 1)},
  'hand': 'loop by hand',
  **{name: peer.description for name, peer in peer_environments.PEERS.items()},
}
OPTIONS = {  # Of ours_graph, as in ours_graph+xla+bfloat16; `ray2` of run, as in run_10+ray2.
  'ray2': 'on two Ray workers (run, run_10 and the buffered ones)',
  'xla': 'local steps compiled',
  'lstm': 'LSTMs as compiled operations (W3)',
  'bfloat16': 'mixed precision',
  'float16': 'the same',
  'single': 'clients one after another',
  'together': 'the whole cohort in batched operations',
  'tensors': "results as TensorFlow's tensors",
}

HELP = (
  '; '.join(f'{name}: {what}' for name, what in VARIANTS.items())
  + '; ours_graph and run also with '
  + ('; '.join(f'+{name}: {what}' for name, what in OPTIONS.items()))
)


def split_variant(variant: str) -> tuple[str, list[str]]:
  """Splits a variant into its name and its options."""
  name, *options = variant.split('+')
  of_run = name.startswith('run') and {*options} <= {'ray2'}
  of_graph = name == 'ours_graph' and {*options} <= {*OPTIONS} - {'ray2'}
  if name not in VARIANTS or (options and not of_run and not of_graph):
    raise ValueError(
      f'unknown variant {variant!r}; there are {", ".join(VARIANTS)}, ours_graph also with'
      f' +{", +".join(o for o in OPTIONS if o != "ray2")}, and those of run with +ray2'
    )
  return name, options
