"""TFF's own way to divide a round among workers, to compare with this project's."""

from collections.abc import Sequence

import grpc
import tensorflow_federated as tff


def context(
  addresses: Sequence[str], subrounds: int = 4
) -> tff.framework.MergeableCompExecutionContext:
  """TFF's context of mergeable computations over workers, with nothing of this project's.

  Args:
    addresses: 'host:port' of each worker.
    subrounds: Into how many parts a cohort is divided; default: as `RemoteContext`.
  """
  return tff.framework.MergeableCompExecutionContext(
    [_on_worker(address) for address in addresses],
    tff.backends.native.compile_to_mergeable_comp_form,
    num_subrounds=subrounds,
  )


def _on_worker(address):
  unlimited = [(f'grpc.max_{way}_message_length', -1) for way in ('send', 'receive')]
  stub = tff.framework.RemoteExecutorGrpcStub(grpc.insecure_channel(address, unlimited))

  def executor(cardinalities):
    remote = tff.framework.RemoteExecutor(stub)
    remote.set_cardinalities({tff.CLIENTS: 0, **cardinalities})
    return remote

  return tff.framework.AsyncExecutionContext(
    tff.framework.ResourceManagingExecutorFactory(executor)
  )
