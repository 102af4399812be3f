"""Runs test vectors in another library, in that library's environment.

usage: PYTHON -m research.peers.vector_rounds LIBRARY FILE

FILE is vectors/least_squares.json, or another with the same fields. It writes JSON, case -> the
server's model after each round. Algorithms run whole rounds; server optimizers are given the
vectors' mean updates. Clients whose update is not finite are left out.
"""

import importlib
import json
import sys

if __name__ == '__main__':
  models = importlib.import_module(f'research.peers.of_{sys.argv[1]}').models()
  sys.stdout.write(json.dumps(models) + '\n')
