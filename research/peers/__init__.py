"""Other libraries, each in an environment of its own (scripts/env/setup_peers.sh)."""
