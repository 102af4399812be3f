"""research/peers/pfedme.py: the clients' own models are evaluated, and training is as before."""

import numpy as np

from research.peers import pfedme


class _Value:
  """As a tensor of PyTorch: copies are values of their own."""

  def __init__(self, value: float):
    self.data = np.array(value)

  def detach(self):
    return self

  def clone(self):
    return _Value(self.data)


def _classes():
  class Optimizer:
    def __init__(self, parameters):
      self._parameters = parameters

    def step(self, local_model, device):
      del local_model, device
      for parameter in self._parameters:
        parameter.data = parameter.data + 1.0
      return self._parameters

  class Client:
    def __init__(self):
      self._parameters = [_Value(0.0)]
      self.model = self
      self.optimizer = Optimizer(self._parameters)

    def parameters(self):
      return self._parameters

    def update_parameters(self, model, values):
      for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value.data

    def train(self):
      self.personalized_params = self.optimizer.step([], 'cpu')

    def test_metrics_personalized(self):
      self.update_parameters(self.model, self.personalized_params)
      return float(self._parameters[0].data)

    train_metrics_personalized = test_metrics_personalized

  return Optimizer, Client


def _evaluated_and_after(client):
  client.train()
  client.update_parameters(client.model, [_Value(5.0)])  # The server's weights.
  return client.test_metrics_personalized(), float(client.parameters()[0].data)


def test_a_clients_own_model_is_evaluated_and_its_network_stays():
  optimizer, client = _classes()
  assert _evaluated_and_after(client()) == (5.0, 5.0)  # The program as it stands.
  pfedme.keep_models(optimizer, client)
  assert _evaluated_and_after(client()) == (1.0, 5.0)
