"""Where the tests find real data, and small files in TFF's format."""

import os
import pathlib
import sqlite3

import pytest
import tensorflow as tf

from tff_adaptive_tasks.data import partition

DATA_DIR = os.environ.get('TFF_ADAPTIVE_DATA') or str(
  pathlib.Path(__file__).resolve().parents[2].parent / 'shared' / 'data'
)


def needs(*names):
  """Skips a test unless the real data files are there."""
  missing = [n for n in names if not os.path.exists(os.path.join(DATA_DIR, n))]
  return pytest.mark.skipif(
    bool(missing), reason=f'{", ".join(missing)} not in {DATA_DIR}; set TFF_ADAPTIVE_DATA'
  )


def example(**features):
  """A serialized tf.train.Example; bytes, int lists and float lists by value."""
  arrays = {}
  for name, value in features.items():
    if isinstance(value, bytes):
      arrays[name] = tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    elif isinstance(value, list) and isinstance(value[0], float):
      arrays[name] = tf.train.Feature(float_list=tf.train.FloatList(value=value))
    else:
      value = value if isinstance(value, list) else [value]
      arrays[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=value))
  return tf.train.Example(features=tf.train.Features(feature=arrays)).SerializeToString()


def write(path, splits):
  """Writes a file in TFF's format; `splits` is split -> client id -> serialized examples."""
  with sqlite3.connect(path) as con:
    con.execute(
      'CREATE TABLE examples (split_name TEXT, client_id TEXT, serialized_example_proto BLOB)'
    )
    con.execute(
      'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, num_examples INTEGER)'
    )
    for split, clients in splits.items():
      for client, protos in clients.items():
        con.executemany(
          'INSERT INTO examples VALUES (?, ?, ?)', [(split, client, p) for p in protos]
        )
        sizes = (client, split, len(protos))
        con.execute('INSERT INTO client_metadata VALUES (?, ?, ?)', sizes)
  con.close()
  return str(path)


def labels_report(task):
  """How unlike the labels of a task's clients are; see `partition.report_of_counts`."""
  labels = [task.train.load(client)['y'] for client in task.train.client_ids]
  return partition.report_of_counts(partition.counts_by_client(labels))
