"""What a training run is asked to do: one frozen configuration, from which the flags are made.

Each field is a flag of scripts/train.py; hyperparameters are flags by their entries in
`tff_adaptive.registry`. Nothing here imports TensorFlow. `resolve.resolve` makes a `Settings`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry, schedules
from tff_adaptive._utils import user_code, validation

from . import (
  aggregator_settings,
  evaluation_settings,
  fields,
  hyperparameters,
  options,
  population_settings,
)

_ONE, _flag, _from = fields.ONE, fields.flag, fields.from_
_RATE_HINT = 'give a rate such as 0.1'


_COUNT = _from(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings(
  evaluation_settings.EvaluationSettings,
  aggregator_settings.AggregatorSettings,
  population_settings.PopulationSettings,
):
  """The settings of a run, resolved and checked; see `--help` for what each means.

  Attributes without a flag of their own:
    correction: The correction's hyperparameters, by name.
    server: The server optimizer's, by name.
    given: What the user gave, by flag name: what a command line needs to say.
  """

  task: str = _flag('What', 'The task: of the list above, or FILE.py:FUNCTION.', 'digits')
  algorithm: str = _flag(
    'What', 'The algorithm: of the list above, or FILE.py:NAME of your own.', 'fed_yogi'
  )
  algorithm_option: tuple[str, ...] = _flag(
    'What', 'A hyperparameter of an algorithm of your own, NAME=VALUE; may be repeated.', []
  )
  server_optimizer: str = _flag(
    'What',
    'The server optimizer, where the name of the algorithm fixes none: of the list above (default'
    ' sgd, as published), or FILE.py:FUNCTION of your own, which fed_avg takes too.',
  )
  server_optimizer_option: tuple[str, ...] = _flag(
    'What', 'An option of a server optimizer of your own, NAME=VALUE; may be repeated.', []
  )
  task_option: tuple[str, ...] = _flag(
    'What',
    "A task's own option, NAME=VALUE, such as only_digits=true or alpha=0.3; may be repeated.",
    [],
  )
  seed: int = _flag(
    'What',
    'Seeds the partition, the initial weights, sampling and shuffling.',
    0,
    _from(0, 2**62 - 1),
    'give a whole number such as 0',
  )
  initial_weights: str | None = _flag(
    'What',
    'Start from these weights: the folder of a run, a .keras or an .npz file. Default: drawn by the'
    ' seed.',
  )
  rounds: int = _flag('How long', "Rounds. Default the task's, as above.", None, _COUNT, _ONE)
  clients_per_round: int = _flag(
    'How long', "Clients drawn each round. Default the task's.", None, _COUNT, _ONE
  )
  client_epochs: int = _flag(
    'How long',
    "Epochs a client trains in a round. Default the task's.",
    None,
    _from(1, 2**20 - 1),
    _ONE,
  )
  batch_size: int = _flag(
    'How long',
    "Examples in a local step; 0 for all at once. Default the task's.",
    None,
    _from(0, 2**20),
    'give 0 for all of a client at once',
  )
  fill_last_batch: bool = _flag(
    'How long',
    "Fill the last batch by drawing again from the client's examples, as AdaBest's experiments do."
    " Default the task's.",
  )
  shuffle_buffer: int | None = _flag(
    'How long',
    "A client's next example (of a text: the next snippet) is drawn among so many, as by tf.data's"
    ' shuffle; default: among all that are left.',
    None,
    _COUNT,
    _ONE,
  )
  max_examples_per_client: int = _flag(
    'How long',
    "Only the first so many examples of a client are used; 0 for all. Default the task's.",
    None,
    _from(0),
    'give 0 for all',
  )
  client_learning_rate: float = _flag(
    'Rates',
    'Client rate eta_l. Default as tuned for the task and the server optimizer.',
    None,
    validation.at_least_zero,
    _RATE_HINT,
  )
  server_learning_rate: float = _flag(
    'Rates',
    "Server rate eta. Default likewise; 1 for a correction with the server's SGD.",
    None,
    validation.at_least_zero,
    _RATE_HINT,
  )
  client_schedule: str = _flag('Rates', "Schedule of the client rate by round. Default the task's.")
  client_schedule_option: tuple[str, ...] = _flag(
    'Rates',
    'Option of the client schedule, NAME=VALUE; see the schedules above. May be repeated.',
    [],
  )
  server_schedule: str = _flag('Rates', 'Schedule of the server rate by round. Default constant.')
  server_schedule_option: tuple[str, ...] = _flag(
    'Rates', 'Option of the server schedule, as above.', []
  )
  client_weighting: str = _flag(
    'Clients',
    'Weight of a client: examples, uniform, or tokens (shakespeare and stackoverflow_nwp). Default'
    " the task's; uniform where the algorithm's paper has it.",
  )
  weight_decay: float = _flag(
    'Clients',
    "Weight decay of the clients. Default the task's.",
    None,
    validation.at_least_zero,
    'give 0 or more',
  )
  clip_norm: float | None = _flag(
    'Clients',
    'Clips local gradients to this 2-norm. Default none.',
    None,
    validation.above_zero,
    'give a norm such as 10, or leave it out',
  )
  client_state_store: str | None = _flag(
    'Clients',
    'Where client states of a stateful algorithm lie during training: memory or disk (of this'
    ' process), or shards: files beside the checkpoint, used by the workers themselves. Default'
    ' memory; with --ray on several machines that see output_dir shards.',
    changes_numbers=False,
  )
  client_state_dir: str | None = _flag(
    'Clients',
    'Folder of the file with the client states and the checkpoint; default in output_dir.',
    changes_numbers=False,
  )
  output_dir: str = _flag(
    'Where',
    "The run's folder; a run found there is resumed. Default runs/TASK_ALGORITHM.",
    changes_numbers=False,
  )
  data_dir: str | None = _flag(
    'Where', "Folder with the task's files; default: TFF's download.", changes_numbers=False
  )
  engine: str = _flag(
    'Where', "graph: one TensorFlow graph a round; native: TFF's own runtime.", 'graph'
  )
  clients_per_step: int | None = _flag(
    'Where',
    'Clients that train together, as batched operations, in the graph engine. Default: one; on a'
    ' GPU the cohort, at most 32, for a model that takes a client axis; lower it where memory runs'
    ' out.',
    None,
    _COUNT,
    _ONE,
  )
  parallel_clients: int | None = _flag(
    'Where',
    'Clients that train at the same time, each on a thread, in the graph engine. Default: the'
    ' processors, at most 4 and the clients of a round; memory grows with it. With as many as'
    ' processors, TensorFlow takes one thread an operation, unless TF_NUM_INTRAOP_THREADS is set.',
    None,
    _COUNT,
    _ONE,
    changes_numbers=False,
  )
  device: str | None = _flag(
    'Where',
    'auto, cpu or gpu, of the graph engine; several GPUs divide the clients. Default auto: a GPU if'
    ' TensorFlow has one.',
  )
  mixed_precision: str | None = _flag(
    'Where',
    'bfloat16 or float16: clients compute predictions and their gradients in it, by float32'
    ' weights; all else stays float32. Gradients differ by some percent. float16 computes'
    ' gradients 1024 times as large, and a client in which they overflow counts as diverged.'
    ' Default: float32 throughout.',
  )
  xla: bool | None = _flag(
    'Where',
    'XLA compiles the local step. For GPUs; on a CPU it was faster for an MLP and twice as slow for'
    ' a CNN. Dropout draws other numbers. Default no.',
  )
  ray: str | None = _flag(
    'Where',
    'Workers of a Ray cluster train the clients: local, a cluster of this machine that ends with'
    ' the command; auto, the one of RAY_ADDRESS or of this machine; or host:port. Default: this'
    ' process does.',
    changes_numbers=False,
  )
  ray_workers: int | None = _flag(
    'Where',
    'Workers, at most; default: as many as there is room for.',
    None,
    _COUNT,
    _ONE,
    changes_numbers=False,
  )
  cpus_per_worker: int | None = _flag(
    'Where',
    'Processors of a worker, and clients that it trains at once. Default 1.',
    None,
    _COUNT,
    _ONE,
    changes_numbers=False,
  )
  gpus_per_worker: float | None = _flag(
    'Where',
    "GPUs of a worker; 0.25 takes a quarter of the memory of one. The server's part stays on"
    ' processors. Default 0: so does a worker.',
  )
  subrounds: int | None = _flag(
    'Where',
    'Parts of even cost into which a cohort is divided. It decides the last bits; where they are'
    ' trained, and by how many workers, does not. Default with --ray 4, or --ray_workers if larger;'
    ' else the cohort is one.',
    None,
    _COUNT,
    _ONE,
  )
  rounds_per_evaluation: int = _flag(
    'Where', 'Rounds from one evaluation to the next.', 10, _COUNT, _ONE, changes_numbers=False
  )
  rounds_per_checkpoint: int = _flag(
    'Where', 'Rounds from one checkpoint to the next.', 50, _COUNT, _ONE, changes_numbers=False
  )
  keep_checkpoints: int = _flag(
    'Where',
    'The last so many checkpoints are kept: the previous one is there if the latest is damaged.',
    2,
    _from(1, 100),
    _ONE,
    changes_numbers=False,
  )
  log_to: tuple[str, ...] = _flag(
    'Where',
    'Log the run to mlflow or wandb (Weights & Biases) too; may be repeated. Their own variables'
    ' say where: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, WANDB_MODE, WANDB_PROJECT.',
    [],
    changes_numbers=False,
  )
  resume_from: str = _flag(
    'Where',
    'The checkpoint to resume from: latest or previous. Rounds after it are done again.',
    'latest',
    changes_numbers=False,
  )
  target: float | None = _flag(
    'Where',
    "summary.json says when the task's metric on the validation data first was so good: by round,"
    ' megabytes and virtual seconds.',
    None,
    validation.real,
    'give a value of the metric, such as 0.9',
    changes_numbers=False,
  )
  correction: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  server: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  given: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

  @property
  def algorithm_entry(self) -> registry.Algorithm:
    """The algorithm's entry."""
    return registry.algorithm(self.algorithm)

  @property
  def server_entry(self) -> registry.ServerOptimizer:
    """The server optimizer's entry."""
    return registry.server_optimizer(self.server_optimizer)

  @property
  def task_options(self) -> dict[str, Any]:
    """The task's options, by name."""
    return options.parse('task_option', self.task_option)

  @property
  def client_rate_schedule(self) -> schedules.Schedule:
    """The client's rate by round."""
    return schedule(
      'client', self.client_schedule, self.client_learning_rate, self.client_schedule_option
    )

  @property
  def server_rate_schedule(self) -> schedules.Schedule:
    """The server's rate by round."""
    return schedule(
      'server', self.server_schedule, self.server_learning_rate, self.server_schedule_option
    )

  def flat(self) -> dict[str, Any]:
    """Flag name -> value, as config.json records it; None where a flag has no meaning."""
    values: dict[str, Any] = {}
    for field in FIELDS:
      value = getattr(self, field.name)
      values[field.name] = list(value) if isinstance(value, tuple) else value
    values.update(dict.fromkeys(hyperparameters.named()))
    for spec, chosen in ((self.algorithm, self.correction), (self.server_optimizer, self.server)):
      if not user_code.is_reference(spec):  # Those of a user's own are in ..._option.
        values.update(chosen)
    return values

  def sources(self) -> dict[str, user_code.UserCode]:
    """The user's own files by the flag that names them."""
    names = ('task', 'algorithm', 'server_optimizer')
    own = [name for name in names if user_code.is_reference(getattr(self, name))]
    return {name: user_code.load(getattr(self, name))[1] for name in own}

  def files(self) -> dict[str, dict[str, str]]:
    """The user's own files by what they are for: path and sha256, as config.json records them."""
    own = {
      name: {'path': source.path, 'sha256': source.sha256}
      for name, source in self.sources().items()
    }
    return {**own, **self.population_files()}


FIELDS = tuple(f for f in dataclasses.fields(Settings) if f.metadata)
CHANGE_NO_NUMBER = tuple(f.name for f in FIELDS if not f.metadata['changes_numbers'])


def schedule(side: str, name: str, rate: float, pairs: tuple[str, ...]) -> schedules.Schedule:
  """Returns the schedule of the client's or the server's rate.

  Args:
    side: 'client' or 'server', for the message.
    name: The schedule's name.
    rate: Its base rate.
    pairs: Its options, NAME=VALUE.

  Raises:
    ValueError: If the schedule or an option is unknown or out of its range.
  """
  given = options.parse(f'{side}_schedule_option', pairs)
  try:
    return schedules.build(name, rate, **given)
  except (TypeError, ValueError) as error:
    raise ValueError(f'--{side}_schedule: {error}') from None


def check(name: str, value: Any) -> None:
  """Refuses a value that its flag does not take; ValueError, in one line."""
  metadata = next(f.metadata for f in FIELDS if f.name == name)
  if metadata['check'] is not None:
    try:
      metadata['check'](f'--{name}', value, metadata['hint'])
    except TypeError as error:
      raise ValueError(str(error)) from None
