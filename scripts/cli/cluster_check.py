"""Checks a Ray cluster before a long run: train.py's --check_ray."""

import dataclasses
import hashlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import command as command_lib, settings as settings_lib, tensorflow_start

# A client trains on so many examples if a batch has all of its examples.
_FEW_EXAMPLES = 10


class Answer(NamedTuple):
  """What a node of the cluster answered.

  Attributes:
    node: The node's name.
    digest: The SHA-256 of the weights after a round there; None if the round failed.
    seconds: How long the round took.
    problem: Why the round failed; '' if it did not.
  """

  node: str
  digest: str | None
  seconds: float = 0.0
  problem: str = ''


def check(settings: settings_lib.Settings) -> int:
  """Trains one step of a round's clients on each node and here, and compares versions and bits.

  What a long run needs of a node is tested by this: the same versions of TensorFlow, TFF and this
  project, the modules that the user's files import, the task's data, and the memory for a model.

  Returns:
    0 if all nodes are ready, else 1.

  Raises:
    ValueError: If the cluster cannot be joined, or the task not loaded, in this process.
  """
  if 'tensorflow_federated' not in sys.modules:
    settings.output.say('Loading TensorFlow ...')
  tensorflow_start.load()
  import tensorflow_federated as tff

  from tff_adaptive import engine

  from . import build

  try:
    prepared = build.prepare(settings, ['train.py', '--check_ray'])
  except engine.WorkerError as error:
    raise ValueError(str(error)) from None
  arguments = _of_one_step(prepared.arguments, settings.training.batch_size)
  ray_context = tff.framework.get_context_stack().current
  answers = []
  for node in ray_context.each_node():
    answer = _answer(node, lambda: _digest_after_training(arguments))
    settings.output.say(_line(answer))
    answers.append(answer)
  # The same parts of the cohort, in this process.
  engine.set_graph_context(parallel_clients=1, device='cpu', results='tensors')
  server = tff.framework.get_context_stack().current
  engine.set_subround_context(settings.runtime.subrounds or 1, server=server)
  here = _answer('this process', lambda: _digest_after_training(arguments))
  ray_context.close()
  text, code = verdict(answers, here, has_gpus=bool(settings.runtime.gpus_per_worker))
  command_lib.show(f'{text}\n')
  return code


def verdict(answers: Sequence[Answer], here: Answer, *, has_gpus: bool) -> tuple[str, int]:
  """Returns a text on all answers, and the exit code of the command.

  Args:
    answers: Those of the nodes.
    here: That of this process. With GPUs in the workers its bits are others, and are not compared.
    has_gpus: Whether the workers have GPUs.
  """
  if not answers:
    return 'No node of the cluster has room for a worker.', command_lib.FAILED
  problems = [f'{answer.node}: {answer.problem}' for answer in answers if answer.problem]
  if here.problem:
    problems.append(f'{here.node}: {here.problem}')
  done = [answer for answer in answers if answer.digest is not None]
  standard = here
  if has_gpus and done:
    standard = done[0]
  for answer in done:
    if standard.digest is not None and answer.digest != standard.digest:
      problems.append(
        f'{answer.node}: other last bits than {standard.node}: a node with another kind of'
        ' processor, or with other libraries; a run on such nodes cannot be repeated to the bit'
      )
  if problems:
    return '\n'.join(['The cluster is not ready.', *problems]), command_lib.FAILED
  number = '1 node is ready'
  if len(answers) > 1:
    number = f'{len(answers)} nodes are ready'
  return f'{number}: the same versions, the data, and the same bits.', command_lib.DONE


def _of_one_step(arguments: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
  """Returns arguments of `training.train` for one round of few examples, which writes nothing."""
  config = arguments['config']
  few = batch_size or _FEW_EXAMPLES
  most = min(few, config.max_examples_per_client or few)
  config = dataclasses.replace(
    config,
    rounds=1,
    max_examples_per_client=most,
    target=None,
    stop_at_target=False,
    early_stop=None,
    keep_best=False,
    ledger=False,
    max_megabytes=None,
    max_gradients=None,
    max_virtual_seconds=None,
  )
  return {
    'process': arguments['process'],
    'clients': arguments['clients'],
    'evaluate_fn': lambda weights: {},
    'config': config,
    'client_losses': arguments['client_losses'],
    'show_progress': False,
  }


def _digest_after_training(arguments: dict[str, Any]) -> str:
  """Trains the round, and returns a digest of the model's weights after it."""
  from tff_adaptive import training
  from tff_adaptive.training import rounds

  state = training.train(**arguments).state
  digest = hashlib.sha256()
  for weight in rounds.trainable(state.global_model_weights):
    digest.update(np.ascontiguousarray(weight).tobytes())
  return digest.hexdigest()


def _answer(node: str, train: Callable[[], str]) -> Answer:
  """Returns the answer of a node, on which `train` trains."""
  began = time.monotonic()
  try:
    digest = train()
  except Exception as error:  # Of any kind: the other nodes are asked all the same.
    return Answer(node, None, problem=' '.join(str(error).split()) or type(error).__name__)
  return Answer(node, digest, time.monotonic() - began)


def _line(answer: Answer) -> str:
  """Returns a line that shows the progress."""
  if answer.problem:
    return f'{answer.node}: failed'
  return f'{answer.node}: a round in {answer.seconds:.1f} s'
