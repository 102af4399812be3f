"""PFLlib's program for pFedMe, with the clients' own models kept until they are evaluated.

usage: PYTHON -m research.peers.pfedme FILE.py [ARGUMENT ...]

At commit d832e76 a pFedMe client keeps as its own model, `personalized_params`, the parameter
objects of the network that it trains. Into these go first its local weights w_i, at the end of its
training, and then the server's, before each evaluation: what is evaluated is the global model. Here
the optimizer returns copies, and an evaluation gives the network its weights back, so that training
is that of the program as it stands.
"""

from collections.abc import Callable, Sequence
from typing import Any

from research.peers import program


def keep_models(optimizer: type, client: type) -> None:
  """Changes PFLlib's classes `pFedMeOptimizer` and `clientpFedMe`."""
  step = optimizer.step  # type: ignore[attr-defined]

  def step_with_copies(self: Any, local_model: Sequence[Any], device: str) -> list[Any]:
    return [value.detach().clone() for value in step(self, local_model, device)]

  optimizer.step = step_with_copies  # type: ignore[attr-defined]
  for name in ('test_metrics_personalized', 'train_metrics_personalized'):
    setattr(client, name, _restoring(getattr(client, name)))


def _restoring(evaluate: Callable[[Any], Any]) -> Callable[[Any], Any]:
  """Returns the evaluation of a client's own model, after which its network is as before."""

  def evaluate_and_restore(self: Any) -> Any:
    before = [value.detach().clone() for value in self.model.parameters()]
    result = evaluate(self)
    self.update_parameters(self.model, before)
    return result

  return evaluate_and_restore


def _change() -> None:
  from flcore.clients import clientpFedMe

  keep_models(clientpFedMe.pFedMeOptimizer, clientpFedMe.clientpFedMe)


if __name__ == '__main__':
  program.run(_change)
