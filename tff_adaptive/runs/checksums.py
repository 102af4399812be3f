"""Checksums of client states and checkpoints, and the digest of a checkpoint's client states."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_CHECKSUM_BYTES = 16


class Count(NamedTuple):
  """The number of clients with a state, and a digest of these states; or the changes of both.

  Attributes:
    clients: The number of clients that have a state.
    digest: The sum of the states' checksums as integers, to which changes can be added.
  """

  clients: int = 0
  digest: int = 0

  def plus(self, other: 'Count') -> 'Count':
    """Returns the sum of two counts."""
    return Count(self.clients + other.clients, self.digest + other.digest)

  @property
  def text(self) -> str:
    """The digest modulo 2**128 as a hexadecimal text, which checkpoints store."""
    return f'{self.digest % 2 ** (8 * _CHECKSUM_BYTES):x}'


def client_checksum(client_id: str, round_number: int, state: bytes) -> bytes:
  """Returns a checksum over a client's id, a round and the client's state."""
  return _checksum([client_id.encode(), str(round_number).encode(), state])


def checkpoint_checksum(
  round_number: int, metadata: str, clients: int, digest: str, leaves: Sequence[tuple]
) -> bytes:
  """Returns the checksum of a checkpoint. `leaves` are rows of name, dtype, shape and data."""
  parts = [json.dumps([round_number, metadata, clients, digest, len(leaves)]).encode()]
  for *texts, data in leaves:
    parts += [*(text.encode() for text in texts), data]
  return _checksum(parts)


def _checksum(parts: Iterable[bytes]) -> bytes:
  """Returns the checksum of some parts in their order."""
  total = hashlib.sha256()
  for part in parts:
    total.update(len(part).to_bytes(8, 'big'))  # So that no byte can move to the next part.
    total.update(part)
  return total.digest()[:_CHECKSUM_BYTES]
