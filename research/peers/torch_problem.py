"""The same for libraries that are built on PyTorch: in float64."""

from collections.abc import Callable
from typing import Any

import torch

from research.peers import operators, problem  # noqa: F401  # So that torchvision can follow.

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def tensors(weights: Any) -> dict[str, Any]:
  """The tensors of a list of all weights."""
  return {name: torch.tensor(one) for name, one in problem.tensors(weights).items()}


def add_weights(module: Any) -> None:
  """Gives a module the initial weights."""
  for name, one in tensors(problem.START).items():
    module.register_parameter(name, torch.nn.Parameter(one))


def predicted(module: Any, x: Any) -> Any:
  """x w, or x W + b."""
  weight, *bias = (getattr(module, name) for name in problem.SHAPES)
  return sum(bias, x @ weight)


class Linear(torch.nn.Module):
  """The file's model, from the initial weights."""

  def __init__(self) -> None:
    super().__init__()
    add_weights(self)

  def forward(self, x: Any) -> Any:
    return predicted(self, x)


class HalfSquare(torch.nn.Module):
  """1/2 mean (x w - y)^2."""

  def forward(self, prediction: Any, y: Any) -> Any:
    return 0.5 * torch.mean((prediction - y) ** 2)


def loss() -> Any:
  """The file's loss, of predictions and labels."""
  if problem.IS_LOGISTIC:
    return torch.nn.CrossEntropyLoss()
  return HalfSquare()


def batches(client: Any) -> list[tuple[Any, Any]]:
  """The batches of one pass of a client in a round."""
  return [(torch.tensor(x), torch.tensor(y)) for x, y in problem.batches(client)]


def weights(model: Any) -> list[float]:
  """All weights of a model, or of a dictionary that has them."""
  state = model if isinstance(model, dict) else model.state_dict()
  return problem.flat([state[name].detach().numpy() for name in problem.SHAPES])


def optimizers(server: Callable[..., Any]) -> dict[str, Callable[[str], Any]]:
  """The server optimizers that are PyTorch's: algorithm -> a function of a case's name.

  `server` takes the name, the optimizer's class and its options but for the rate.
  """

  def momentum(name: str) -> Any:
    values = problem.of_server(name)
    is_nesterov = values['name'] == 'nesterov'
    return server(name, torch.optim.SGD, momentum=values['momentum'], nesterov=is_nesterov)

  def adagrad(name: str) -> Any:
    values = problem.of_server(name)
    options = {'initial_accumulator_value': values['initial_v'], 'eps': values['tau']}
    return server(name, torch.optim.Adagrad, **options)

  def adam(name: str) -> Any:
    tau = problem.of_server(name)['tau']
    return server(name, torch.optim.Adam, betas=problem.betas(name), eps=tau)

  return {
    'fed_avgm': momentum,
    'fed_nesterov': momentum,
    'fed_adagrad': adagrad,
    'fed_adam': adam,
  }
