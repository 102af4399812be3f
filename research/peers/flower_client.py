"""What a client of `flower_rounds.py` does.

A module of its own, for Flower's workers are other processes: they import it by its name, where
what is defined in the script itself would be sent by value, and a cache cannot be.
"""

import functools

import serving
import torch
import torch_models
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict


def train(name: str, message: Message, context: Context) -> Message:
  """E epochs of SGD from the server's weights.

  Returns:
    The client's weights, and how many examples it has.
  """
  torch.set_num_threads(1)
  workload, data = serving.workloads.WORKLOADS[name], _data(name)
  x, y = data[int(context.node_config['partition-id']) % len(data)]
  module, loss = torch_models.build(workload)
  module.load_state_dict(message.content['arrays'].to_torch_state_dict())
  optimizer = torch.optim.SGD(module.parameters(), lr=workload.rate)
  for _ in range(workload.epochs):
    for batch in torch.split(torch.randperm(len(x)), workload.batch_size):
      optimizer.zero_grad()
      loss(module(x[batch]), y[batch]).backward()
      optimizer.step()
  content = RecordDict(
    {
      'arrays': ArrayRecord(module.state_dict()),
      'metrics': MetricRecord({'num-examples': len(x)}),
    }
  )
  return Message(content=content, reply_to=message)


@functools.cache
def _data(name: str) -> list[tuple[torch.Tensor, torch.Tensor]]:
  """All clients' data: a worker makes them in its first round, which is not measured."""
  workload = serving.workloads.WORKLOADS[name]
  pool = workload.pool
  return [torch_models.arrays(workload, client) for client in range(pool)]
