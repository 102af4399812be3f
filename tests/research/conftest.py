"""What holds for the tests of research/."""

import sys

import pytest
from absl import flags as absl_flags


@pytest.fixture(autouse=True)
def flags_of_commands_are_as_before():
  """Gives every flag its default after a test: commands have flags of their own, which stay."""
  yield
  for name, module in list(sys.modules.items()):
    flags = vars(module).get('_FLAGS') if name.startswith(('research', 'scripts')) else None
    if isinstance(flags, absl_flags.FlagValues):
      for flag in flags:
        flags[flag].unparse()
      flags.unparse_flags()
