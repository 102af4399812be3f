"""Compares a method with the built-in ones on fixed problems, by a fixed protocol.

usage: {bench} FILE.py:NAME [--flag=value ...]
       {bench} --algorithm=NAME,NAME [--flag=value ...]

Each method gets the same search on each problem: a few trials choose its client rate, then the best
is trained with several seeds. Beside it stand the stored rows of the built-in methods. The folder
OUTPUT_DIR gets bench.md and bench.html, the page; bench.png, its figure; and rows.csv, a row for
each run. The same command again goes on where it was stopped.

  {bench} mine.py:Damped
      A class of your own (docs/guide/own_algorithms.md) on six problems that need no download: a
      few minutes on two free cores.
  {bench} mine.py:Damped --problems=least_squares,tumours
      A first look at two problems.
  {bench} mine.py:Damped --budget=full --search=strength=0.01,1,log
      More trials and seeds (20 to 30 minutes); an option of your own is searched too.
  {bench} --algorithm=ada_best --set=server_optimizer=yogi
      A combination of built-in parts; --set gives any flag of train.py.
  {bench} --list
      The problems, the methods, and how many stored rows each method has.
  {bench} --verify=5
      Trains five stored rows, drawn at random by --seed, again and compares their values.

The page has ranks, paired differences with intervals, curves over the rounds, costs, sensitivity to
the rate, and what cannot be concluded. docs/guide/bench.md has the protocol.
"""

import importlib
import os
import sys
from collections.abc import Sequence

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from .cli import command, flags
from .comparison import asked, work

_FLAGS = flags.define(flags.of_group(asked.Asked))


@command.entry('bench.py', 'interrupted; the same command goes on after the runs that are done.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Returns 0; 1 if a run failed, or a row that was made again differs; 2 for bad input.
  """
  # None: --help was shown.
  words = command.parse(_FLAGS, __doc__, arguments)
  if words is None:
    return command.DONE
  given = flags.check(_FLAGS, asked.Asked)
  if given.list:
    return work.show_list(given)
  if given.verify or given.rerun:
    return work.verify(given)
  return work.compare(given, asked.methods_of(given, words))


if __name__ == '__main__':
  sys.exit(main())
