"""The tables of a state file, which `state_file` reads and writes."""

FORMAT = 'tff-adaptive-3'  # Its name in the file; see the setting `format`.
# Compared with the text that SQLite keeps of a file's tables: another spelling is another format.
SETTINGS = 'CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL)'
TABLES = (
  SETTINGS,
  'CREATE TABLE client_state (id TEXT NOT NULL, round INTEGER NOT NULL, checksum BLOB NOT NULL,'
  ' state BLOB NOT NULL)',
  'CREATE UNIQUE INDEX client_versions ON client_state (id, round, checksum)',
  'CREATE TABLE checkpoint (round INTEGER PRIMARY KEY, metadata TEXT NOT NULL,'
  ' clients INTEGER NOT NULL, digest TEXT NOT NULL, checksum BLOB NOT NULL)',
  'CREATE TABLE server_state (round INTEGER NOT NULL, position INTEGER NOT NULL,'
  ' name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL,'
  ' PRIMARY KEY (round, position))',
)
