"""What becomes of named slots of the client optimizer after a round, as parts declare it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
  from tff_adaptive.corrections.base import Correction

# 'reset': it begins anew in each round. 'keep': the client keeps it. 'average': the cohort's mean,
# with the weights of the updates, is sent to the next cohort. 'average_blocks': the same of the
# slot's mean over each tensor, one number for each, with which all entries begin.
RULES = ('reset', 'keep', 'average', 'average_blocks')
_AVERAGED = ('average', 'average_blocks')


def of_parts(parts: Sequence[Correction | type[Correction]]) -> Mapping[str, str]:
  """Returns the rules of all parts; raises ValueError if two parts have one for the same slot."""
  rules: dict[str, str] = {}
  owners: dict[str, str] = {}
  for part in parts:
    for name, rule in part.optimizer_slots.items():
      # 'm:matrices' and 'm:vectors' are rules of one slot m, which belongs to one part.
      slot = name.partition(':')[0]
      other = owners.setdefault(slot, part.name)
      if other != part.name:
        raise ValueError(
          f'{part.name} cannot be combined with {other}: both say what becomes of the client'
          f" optimizer's {slot}; leave one of them out."
        )
      rules[name] = rule
  return MappingProxyType(rules)


def keeps(optimizer_state: str | None, rules: Mapping[str, str]) -> bool:
  """Returns whether clients keep slots, given `ClientTraining.optimizer_state` and the rules."""
  return optimizer_state == 'keep' or 'keep' in rules.values()


def averages(optimizer_state: str | None, rules: Mapping[str, str]) -> bool:
  """Returns whether the server averages slots."""
  return optimizer_state == 'average' or not set(rules.values()).isdisjoint(_AVERAGED)


def rules_of(
  part: Correction, optimizer_state: str, slots: Sequence[tuple[str, bool]]
) -> tuple[str, ...]:
  """Returns the rule of each slot.

  Args:
    part: The part, or chain, that may name slots.
    optimizer_state: The rule of the others.
    slots: The name of each slot, and whether the optimizer steps its weight as a matrix.

  Raises:
    ValueError: If the part names a slot that the optimizer has not, or an unknown rule.
  """
  known = dict.fromkeys(name for name, _ in slots)
  for name, rule in part.optimizer_slots.items():
    if name.partition(':')[0] not in known:
      raise ValueError(
        f'{part.name} needs a client optimizer with a slot {name.partition(":")[0]!r}, found one'
        f' with {", ".join(known) or "none"}: take that of the algorithm, or another algorithm.'
      )
    if rule not in RULES:
      raise ValueError(
        f'optimizer_slots of {part.name} has {name}={rule!r}: give one of {", ".join(RULES)}.'
      )
  rules = []
  for name, is_matrix in slots:
    # A rule for the kind of tensor comes before that of the name, and this before the general one.
    kind = 'matrices' if is_matrix else 'vectors'
    of_name = part.optimizer_slots.get(name, optimizer_state)
    rules.append(part.optimizer_slots.get(f'{name}:{kind}', of_name))
  return tuple(rules)
