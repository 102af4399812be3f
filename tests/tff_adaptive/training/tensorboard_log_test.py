"""Event files for TensorBoard, in folders of any name."""

import os
import types

import pytest
import tensorflow as tf

from tff_adaptive.training import tensorboard_log


@pytest.mark.parametrize('name', [os.fsdecode(b'a\xff'), 'é', 'a://b', 'gs://b'])
def test_a_folder_may_have_any_name(name, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  log = tensorboard_log.EventLog(name)
  log.begin(types.SimpleNamespace(first_round=1))
  log.round_end({'round': 1, 'train_loss': 0.5})
  log.close()
  (file,) = os.listdir(name)
  path = os.fsencode(os.path.abspath(os.path.join(name, file)))
  *_, last = (record.numpy() for record in tf.data.TFRecordDataset([path]))
  event = tf.compat.v1.Event.FromString(last)
  assert (event.step, event.summary.value[0].tag) == (1, 'train/loss')
  assert event.summary.value[0].simple_value == 0.5
