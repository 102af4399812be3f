"""Addresses of workers; nothing here imports TensorFlow."""

from collections.abc import Sequence

DEFAULT_SUBROUNDS = 4  # Parts into which a cohort is divided.


def split(address: str) -> tuple[str, int]:
  """The host and the port of `host:port`, where the host may be an IPv6 address in brackets.

  Raises:
    ValueError: If it is not written so.
  """
  host, colon, port = address.rpartition(':')
  is_bare_ipv6 = ':' in host and not (host.startswith('[') and host.endswith(']'))
  if not colon or not host or is_bare_ipv6 or not port.isascii() or not port.isdigit():
    raise ValueError(f'{address!r} is not host:port: write it as 10.0.0.2:8000 or [::1]:8000')
  if not 1 <= int(port) <= 65535:
    raise ValueError(f'the port of {address!r} must be from 1 to 65535: give 8000, say')
  return host.strip('[]'), int(port)


def check(addresses: Sequence[str]) -> list[str]:
  """Returns addresses of workers without blanks.

  Raises:
    TypeError: If they are no list of strings.
    ValueError: If there are none, one is not `host:port`, or one is given twice.
  """
  if not isinstance(addresses, Sequence) or isinstance(addresses, str):
    mend = addresses.split(',') if isinstance(addresses, str) else ['10.0.0.2:8000']
    raise TypeError(f'addresses must be a list of host:port, found {addresses!r}: give {mend}')
  for address in addresses:
    if not isinstance(address, str):
      raise TypeError(f"an address must be 'host:port', found {address!r}: give '10.0.0.2:8000'")
  found = [address.strip() for address in addresses]
  if not any(found):
    raise ValueError('no worker is named: give host:port,host:port')
  for address in found:
    split(address)
    if found.count(address) > 1:
      raise ValueError(f'{address} is given twice: give each worker once')
  return found
