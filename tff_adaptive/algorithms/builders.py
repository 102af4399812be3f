"""Builders of processes from parts, and typed builders of ten algorithms.

`build_process(name, ...)` builds every algorithm by its name. `build_drift_corrected` builds from a
correction and a server optimizer. The builders with an algorithm's name are for the algorithms that
programs build most: type checkers and editors know their arguments.

Such a builder takes the arguments of `build_drift_corrected` except `correction`. Some take
`server_learning_rate`, the rate of their own server optimizer, in place of `server_optimizer`. The
defaults are the registry's. By default a client's weight in FedAvg, FedAvgM, FedAdagrad, FedAdam,
FedYogi and FedProx is its number of examples; in the other algorithms all clients count the same.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias, TypedDict

import tensorflow_federated as tff
from typing_extensions import Required, Unpack

from tff_adaptive import corrections, models, optimizers, registry
from tff_adaptive._utils import validation
from tff_adaptive.algorithms import components, stateful_process
from tff_adaptive.asynchrony.settings import Buffered
from tff_adaptive.client import local_training, model_adapters

Process: TypeAlias = tff.learning.templates.LearningProcess | stateful_process.StatefulProcess

_SGDM, _ADAGRAD, _ADAM, _YOGI = map(registry.server_optimizer, ('sgdm', 'adagrad', 'adam', 'yogi'))
_FED_PROX, _SCAFFOLD, _FED_DYN, _ADA_BEST = map(
  registry.algorithm, ('fed_prox', 'scaffold', 'fed_dyn', 'ada_best')
)


class _Common(TypedDict, total=False):
  """The arguments that all named builders share; see `build_drift_corrected`."""

  client_learning_rate: Required[components.Rate]
  training: local_training.ClientTraining | None
  aggregator: components.Aggregator | None
  client_weighting: components.Weighting
  more_parts: Sequence[corrections.Correction]
  asynchrony: Buffered | None


def _by_examples(common: _Common) -> _Common:
  # What the caller gives comes last, so that it wins.
  return {'client_weighting': 'examples', **common}


def build_drift_corrected(
  model: model_adapters.AnyModel,
  correction: corrections.Correction,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  *,
  client_learning_rate: components.Rate,
  training: local_training.ClientTraining | None = None,
  aggregator: components.Aggregator | None = None,
  client_weighting: components.Weighting = 'uniform',
  more_parts: Sequence[corrections.Correction] = (),
  asynchrony: Buffered | None = None,
) -> Process:
  """Builds a process from any client correction and any server optimizer.

  `build_process(name, ...)` builds an algorithm by its name, with that algorithm's defaults.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    correction: The client correction, or `corrections.chain` of several parts. `chain()` corrects
      nothing, which gives FedOpt, Algorithm 1 of "Adaptive Federated Optimization" (Reddi et al.,
      2021).
    server_optimizer: A TFF optimizer that descends along the aggregated pseudo-gradient, to which
      FedDyn and AdaBest add the server's drift estimate h. Its rate may be a schedule. None means
      SGD with rate 1, which gives the published drift-corrected algorithms.
    client_learning_rate: eta_l >= 0, or a schedule: a function of the round, counted from 0.
    training: How a client trains: optimizer, batches, seed, XLA. None means
      SGD on clients that are given as datasets of batches.
    aggregator: A TFF aggregation factory (clipping, compression, privacy ...); None for the mean.
      An aggregator without weights needs client_weighting 'uniform'. It cannot leave out a client
      that diverged: such a client then counts with an update of zero.
    client_weighting: Weights of the clients in the mean of the updates: 'uniform'; 'examples' for
      n_i, the number of rows of the client's batches (not the `BatchOutput.num_examples` of a
      `VariableModel`); or a function of the client's unfinalized training metrics, like TFF's
      `client_weighting`. A `tff_adaptive.models.Model` has a dict of metrics by name: float32 [2],
      a sum and a count, or [G, 2] if G clients train together.
    more_parts: Parts that follow the correction in the chain, such as `[corrections.Sam(0.05)]`.
    asynchrony: The settings of asynchronous training, those of the run's
      `TrainingConfig.asynchrony`; None for synchronous rounds.

  Returns:
    A `LearningProcess` if clients keep no state between rounds, else a `StatefulProcess`.

  Raises:
    ValueError: If an argument is out of its range, two arguments exclude each other (such as
      weights and an aggregator that takes none), or the client optimizer's rate cannot be set.
    TypeError: If an argument has the wrong type.
  """
  hint = 'give tff_adaptive.corrections.FedProx(mu=0.01), say'
  validation.instance('correction', correction, corrections.Correction, hint)
  correction = corrections.chain(correction, *more_parts)
  if server_optimizer is None:
    server_optimizer = optimizers.build_sgdm(1.0)
  hint = 'give tff_adaptive.optimizers.build_yogi(0.01), say'
  kind = tff.learning.optimizers.Optimizer
  validation.instance('server_optimizer', server_optimizer, kind, hint)
  client_learning_rate = components.check_rate('client_learning_rate', client_learning_rate)
  components.check_weighting(client_weighting)
  components.check_aggregator(aggregator, client_weighting)
  if training is None:
    training = local_training.ClientTraining()
  hint = 'give tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20)), say'
  validation.instance('training', training, local_training.ClientTraining, hint)
  if training.xla:
    # Others may keep variables, which XLA would share between clients.
    validation.instance('model', model, models.Model, 'leave xla out for others')
  if correction.needs_num_examples and training.batching is None:
    raise ValueError(
      'scaling mu by client size needs the number of examples before training: give '
      'training=tff_adaptive.ClientTraining(batching=...)'
    )
  local_model = model_adapters.wrap(model)
  # By the names of the weights, known only now, parts find those that stay or are frozen.
  named_weights = local_model.named_weights()
  training = training.resolved(named_weights)
  correction = correction.resolved(named_weights)
  _check_needs(correction, local_model, training)
  if asynchrony is not None:
    _check_asynchrony(asynchrony, correction, training)
  recipe = components.Recipe(
    local_model,
    training,
    correction,
    server_optimizer,
    client_learning_rate,
    aggregator,
    client_weighting,
    asynchrony,
  )
  return stateful_process.compose(recipe)


def _check_needs(
  correction: corrections.Correction,
  model: model_adapters.LocalModel,
  training: local_training.ClientTraining,
) -> None:
  """Raises ValueError unless the model and the training have what the parts need."""
  if correction.needs_batching and training.batching is None:
    raise ValueError(
      f'{correction.name} needs clients that are given as whole arrays'
      f' ({correction.needs_batching}): give'
      ' training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20)), say.'
    )
  if correction.overrides('loss') and not model.takes_loss:
    raise ValueError(
      f'{correction.name} changes the loss, which needs the outputs of the model: give a'
      ' tff_adaptive.models.Model (models.from_keras makes one of a Keras model).'
    )
  _check_statistics(correction, model.statistics)
  sends_more = any(part.uploads_what for part in correction.parts)
  if correction.unsent and all(correction.unsent) and not sends_more:
    raise ValueError(
      f'{correction.name}: all weights of the model stay at the clients or are frozen, so that'
      ' nothing is sent: name fewer layers.'
    )


# With these a part moves weights or states by other rules than gradients of batches, takes them
# elsewhere, has a second model, or sends what belongs to all weights.
_MOVE_STATISTICS = (
  'begin',
  'point',
  'moved',
  'local_state',
  'exchange',
  'update',
  'server_state',
  'personal',
)


def _check_statistics(correction: corrections.Correction, statistics: tuple[bool, ...]) -> None:
  """Raises ValueError unless a model's moving statistics stay at the clients, and only move."""
  if not statistics:
    return
  stays = correction.stays or (False,) * len(statistics)
  if any(moves and not here for moves, here in zip(statistics, stays)):
    raise ValueError(
      'the moving statistics of the model have to stay at the clients, because the server has no'
      ' batches: take FedBN, or another part that keeps layers with layers=norm; or build the model'
      ' without moving_statistics.'
    )
  for part in correction.parts:
    keeps_or_compresses = any(part.stays) or part.compresses or part.compresses_down
    hooks = [hook for hook in _MOVE_STATISTICS if part.overrides(hook)]
    if hooks and not keeps_or_compresses:
      raise ValueError(
        f'{part.name} cannot be combined with moving statistics, which only forward passes may move'
        f' and which stay at the client (its {", ".join(hooks)}): leave it out, or build the model'
        ' without moving_statistics.'
      )
  # Clipping would count what the parts before it add to the gradients of statistics.
  names = [part.name for part in correction.parts if part.overrides('gradient')]
  if 'clip' in names and names[0] != 'clip':
    raise ValueError(
      f'clipping cannot be combined with {names[0]} before it for a model with moving statistics:'
      ' leave one of them out, or build the model without moving_statistics.'
    )


def _check_asynchrony(
  asynchrony: Buffered, correction: corrections.Correction, training: local_training.ClientTraining
) -> None:
  """Raises TypeError or ValueError unless the three can train asynchronously together."""
  hint = 'give the config.asynchrony of the run, or None for synchronous rounds'
  validation.instance('asynchrony', asynchrony, Buffered, hint)
  if training.batching is None:
    raise ValueError(
      'asynchronous training needs clients that are given as whole arrays: give '
      'training=tff_adaptive.ClientTraining(batching=tff_adaptive.Batching(20)), say.'
    )
  if correction.overrides('exchange'):
    raise ValueError(
      f'{correction.name} exchanges values before clients train, which asynchronous training '
      'cannot do: train synchronously (asynchrony=None), or take another correction.'
    )
  if correction.compresses_down:
    raise ValueError(
      f'{correction.name} sends changes from round to round, and in asynchronous training each'
      ' client begins with another model: train synchronously (asynchrony=None), or leave out what'
      ' compresses downwards.'
    )
  if asynchrony.mixing and correction.overrides('update'):
    raise ValueError(
      f'{correction.name} does not aggregate differences of models: leave mixing out.'
    )
  if asynchrony.mixing and any(correction.unsent):
    raise ValueError(
      f'{correction.name} does not send all weights, and mixing moves whole models: leave mixing'
      ' out.'
    )


def build_fed_avg(
  model: model_adapters.AnyModel,
  *,
  server_learning_rate: components.Rate = 1.0,
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedAvg (McMahan et al., 2017): the server takes the mean of the client models.

  Args:
    server_learning_rate: The rate of the server's SGD, or a schedule of it. 1 gives FedAvg.
    model, **common: See `build_drift_corrected`. client_weighting is 'examples' by default.
  """
  server = optimizers.build_sgdm(server_learning_rate)
  return build_drift_corrected(model, corrections.Correction(), server, **_by_examples(common))


def build_fed_avgm(
  model: model_adapters.AnyModel,
  *,
  server_learning_rate: components.Rate = 1.0,
  momentum: float = _SGDM.default('momentum'),
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedAvgM (Hsu et al., 2019): FedAvg with momentum at the server.

  Args:
    server_learning_rate, momentum: See `optimizers.build_sgdm`.
    model, **common: See `build_drift_corrected`. client_weighting is 'examples' by default.
  """
  server = optimizers.build_sgdm(server_learning_rate, momentum=momentum)
  return build_drift_corrected(model, corrections.Correction(), server, **_by_examples(common))


def build_fed_adagrad(
  model: model_adapters.AnyModel,
  *,
  server_learning_rate: components.Rate,
  tau: float = _ADAGRAD.default('tau'),
  beta1: float = _ADAGRAD.default('beta1'),
  initial_v: float | None = _ADAGRAD.default('initial_v'),
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedAdagrad: Algorithm 2 of "Adaptive Federated Optimization" with Adagrad at the server.

  Args:
    server_learning_rate, tau, beta1, initial_v: See `optimizers.build_adagrad`.
    model, **common: See `build_drift_corrected`. client_weighting is 'examples' by default.
  """
  server = optimizers.build_adagrad(server_learning_rate, tau=tau, beta1=beta1, initial_v=initial_v)
  return build_drift_corrected(model, corrections.Correction(), server, **_by_examples(common))


def build_fed_adam(
  model: model_adapters.AnyModel,
  *,
  server_learning_rate: components.Rate,
  tau: float = _ADAM.default('tau'),
  beta1: float = _ADAM.default('beta1'),
  beta2: float = _ADAM.default('beta2'),
  bias_correction: bool = _ADAM.default('bias_correction'),
  initial_v: float | None = _ADAM.default('initial_v'),
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedAdam: Algorithm 2 of "Adaptive Federated Optimization" with Adam at the server.

  Args:
    server_learning_rate, tau, beta1, beta2, bias_correction, initial_v: See
      `optimizers.build_adam`.
    model, **common: See `build_drift_corrected`. client_weighting is 'examples' by default.
  """
  values: dict[str, Any] = dict(tau=tau, beta1=beta1, beta2=beta2, bias_correction=bias_correction)
  server = optimizers.build_adam(server_learning_rate, initial_v=initial_v, **values)
  return build_drift_corrected(model, corrections.Correction(), server, **_by_examples(common))


def build_fed_yogi(
  model: model_adapters.AnyModel,
  *,
  server_learning_rate: components.Rate,
  tau: float = _YOGI.default('tau'),
  beta1: float = _YOGI.default('beta1'),
  beta2: float = _YOGI.default('beta2'),
  bias_correction: bool = _YOGI.default('bias_correction'),
  initial_v: float | None = _YOGI.default('initial_v'),
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedYogi: Algorithm 2 of "Adaptive Federated Optimization" with Yogi at the server.

  Args:
    server_learning_rate, tau, beta1, beta2, bias_correction, initial_v: See
      `optimizers.build_yogi`.
    model, **common: See `build_drift_corrected`. client_weighting is 'examples' by default.
  """
  values: dict[str, Any] = dict(tau=tau, beta1=beta1, beta2=beta2, bias_correction=bias_correction)
  server = optimizers.build_yogi(server_learning_rate, initial_v=initial_v, **values)
  return build_drift_corrected(model, corrections.Correction(), server, **_by_examples(common))


def build_fed_prox(
  model: model_adapters.AnyModel,
  *,
  mu: float = _FED_PROX.default('mu'),
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  **common: Unpack[_Common],
) -> tff.learning.templates.LearningProcess:
  """FedProx (Li et al., 2020): a proximal term keeps the clients near the model they received.

  Args:
    mu: Weight of the proximal term, >= 0. 0 gives FedAvg.
    model, server_optimizer, **common: As in `build_drift_corrected`, but 'examples' by default.
  """
  correction = corrections.FedProx(mu)
  return build_drift_corrected(model, correction, server_optimizer, **_by_examples(common))


def build_scaffold(
  model: model_adapters.AnyModel,
  *,
  num_clients: int,
  scaffold_option: int = _SCAFFOLD.default('scaffold_option'),
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  **common: Unpack[_Common],
) -> stateful_process.StatefulProcess:
  """SCAFFOLD (Karimireddy et al., 2020): clients and server exchange control variates.

  Args:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
    scaffold_option: The paper's option I (1) or II (2); see `corrections.Scaffold`.
    model, server_optimizer, **common: See `build_drift_corrected`.
  """
  correction = corrections.Scaffold(num_clients, scaffold_option)
  return build_drift_corrected(model, correction, server_optimizer, **common)


def build_scaffold_m(
  model: model_adapters.AnyModel,
  *,
  num_clients: int,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  **common: Unpack[_Common],
) -> stateful_process.StatefulProcess:
  """SCAFFOLD/m (Varno et al., 2022): the server computes its control variate from the updates.

  Args:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
    model, server_optimizer, **common: See `build_drift_corrected`.
  """
  correction = corrections.ScaffoldM(num_clients)
  return build_drift_corrected(model, correction, server_optimizer, **common)


def build_fed_dyn(
  model: model_adapters.AnyModel,
  *,
  num_clients: int,
  mu: float = _FED_DYN.default('mu'),
  mean_examples: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  **common: Unpack[_Common],
) -> stateful_process.StatefulProcess:
  """FedDyn (Acar et al., 2021): dynamic regularisation of the client losses.

  Args:
    num_clients: N, the number of registered clients. No cohort may be larger; this is not checked.
    mu: Weight of the regulariser, finite and >= 0; alpha in the paper.
    mean_examples: The mean number of examples of a client. If it is given, the weight for a client
      with n_i examples is mu mean_examples / n_i. If it is None, the weight is mu for all clients.
    model, server_optimizer, **common: See `build_drift_corrected`.
  """
  scale_mu = mean_examples is not None
  correction = corrections.FedDyn(mu, num_clients, mean_examples, scale_mu)
  return build_drift_corrected(model, correction, server_optimizer, **common)


def build_ada_best(
  model: model_adapters.AnyModel,
  *,
  mu: float = _ADA_BEST.default('mu'),
  beta: float = _ADA_BEST.default('beta'),
  scale_mu: bool = _ADA_BEST.default('scale_mu'),
  beta_decay: float = _ADA_BEST.default('beta_decay'),
  plateau_rounds: int = 50,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  **common: Unpack[_Common],
) -> stateful_process.StatefulProcess:
  """AdaBest (Varno et al., 2022): drift estimates that fade while a client is away.

  Args:
    mu, scale_mu, beta_decay, plateau_rounds: See `corrections.AdaBest`.
    beta: Factor of the server's drift estimate; see `corrections.AdaBest`. Use 0.2 with a server
      optimizer that has momentum (sgdm, adam, yogi), because training diverges with the default.
    model, server_optimizer, **common: See `build_drift_corrected`.
  """
  correction = corrections.AdaBest(mu, beta, scale_mu, beta_decay, plateau_rounds)
  return build_drift_corrected(model, correction, server_optimizer, **common)
