"""Workers that end, fall silent or come back in the midst of a round."""

import asyncio
import os
import signal
import socket
import threading
import time

import psutil
import tensorflow as tf
import tensorflow_federated as tff

from scripts import forwarding
from scripts.benchmarking import local_workers
from tests.tff_adaptive.execution import on_workers
from tff_adaptive import execution
from tff_adaptive.execution import connections, crew


def _waiting(folder):
  """A computation whose clients say that they have begun, and wait until a file `go` is there."""

  @tff.tensorflow.computation(on_workers.INT)
  def work(x):
    begun = tf.io.write_file(tf.strings.join([str(folder), '/', tf.strings.as_string(x)]), '')
    with tf.control_dependencies([begun]):
      tries = tf.while_loop(
        lambda _: tf.equal(tf.size(tf.io.matching_files(f'{folder}/go')), 0),
        lambda n: (n + 1,),
        (tf.constant(0),),
      )
    with tf.control_dependencies(tries):
      return tf.identity(x)

  @tff.federated_computation(on_workers.AT_CLIENTS)
  def comp(x):
    done = tff.federated_map(work, x)
    return tff.federated_sum(done), done

  return comp


class _Background(threading.Thread):
  """Calls a computation in a context of its own thread."""

  def __init__(self, context, comp, arg):
    super().__init__(daemon=True)
    self._call = context, comp, arg
    self.result = self.error = None
    self.start()

  def run(self):
    context, comp, arg = self._call
    try:
      self.result = context.invoke(comp, arg)
    except Exception as error:
      self.error = error


def _wait_for(condition, seconds=60):
  end = time.monotonic() + seconds
  while not condition():
    assert time.monotonic() < end, 'waited too long'
    time.sleep(0.02)


def test_a_worker_that_dies_in_a_round_is_told_and_its_clients_count_once(tmp_path):
  lines = []
  with (
    on_workers.two_workers() as workers,
    on_workers.context(workers.addresses, subrounds=2) as context,
  ):
    context.announce('round 7', lines.append)
    call = _Background(context, _waiting(tmp_path), [1, 2, 3, 4])
    _wait_for(lambda: len(os.listdir(tmp_path)) == 4)  # Both have begun.
    workers.processes[0].send_signal(signal.SIGKILL)
    _wait_for(lambda: lines)
    (tmp_path / 'go').write_text('')
    call.join(60)
    assert call.error is None
    total, done = call.result
    assert (total, list(done)) == (10, [1, 2, 3, 4])
    assert lines[0].startswith(f'Round 7: worker {workers.addresses[0]} is lost (')
    assert lines[0].endswith('its work goes to the 1 left')

    call = _Background(
      context, on_workers.double_and_sum(), [1, 2, 3]
    )  # The next round does without it.
    call.join(60)
    assert call.result[0] == 12

    workers.processes[1].kill()
    context.announce('round 9')
    call = _Background(context, on_workers.double_and_sum(), [1, 2, 3])
    call.join(60)
    assert isinstance(call.error, execution.WorkersLost)
    assert str(call.error).startswith('Round 9: all workers are lost (')
    assert all(address in str(call.error) for address in workers.addresses)


def test_a_machine_that_falls_silent_is_given_up(tmp_path, monkeypatch, workers):
  monkeypatch.setattr(crew, '_BEAT_SECONDS', 0.2)
  lines = []
  with socket.socket() as listener:
    listener.bind(('127.0.0.1', 0))
    listener.listen()
    port = int(workers.addresses[0].rpartition(':')[2])
    forwarding.forward(listener, port)
    address = f'127.0.0.1:{listener.getsockname()[1]}'
    with on_workers.context([address, workers.addresses[1]], subrounds=2) as context:
      context.announce('round 3', lines.append)
      call = _Background(context, _waiting(tmp_path), [1, 2])
      _wait_for(lambda: len(os.listdir(tmp_path)) == 2)
      listener.shutdown(socket.SHUT_RDWR)  # Its connections stay open and say nothing.
      _wait_for(lambda: lines)
      (tmp_path / 'go').write_text('')
      call.join(60)
      assert call.result[0] == 3
  assert address in lines[0]


def test_a_worker_whose_process_is_stopped_is_given_up(tmp_path, monkeypatch):
  monkeypatch.setattr(crew, '_BEAT_SECONDS', 0.2)
  monkeypatch.setattr(connections, '_KNOCK_SECONDS', 1.0)
  lines = []
  with (
    on_workers.two_workers() as workers,
    on_workers.context(workers.addresses, subrounds=2) as context,
  ):
    context.announce('round 4', lines.append)
    call = _Background(context, _waiting(tmp_path), [1, 2])
    _wait_for(lambda: len(os.listdir(tmp_path)) == 2)
    # Both stay busy for several beats, and answer in the midst of it.
    time.sleep(2.0)
    assert not lines
    started = psutil.Process(workers.processes[0].pid)
    stopped = [p for p in [started, *started.children(recursive=True)] if 'worker_b' in p.name()]
    assert stopped
    for process in stopped:
      process.suspend()  # The system still accepts connections for it.
    try:
      _wait_for(lambda: lines)
    finally:
      for process in stopped:
        process.resume()
    (tmp_path / 'go').write_text('')
    call.join(60)
    assert call.result[0] == 3
  assert workers.addresses[0] in lines[0]


def test_a_worker_that_begins_anew_is_used_again(monkeypatch):
  async def in_an_event_loop(comp):  # As in a notebook.
    return comp([1, 2, 3, 4])

  monkeypatch.setattr(crew, '_RETURN_SECONDS', 0.0)
  lines = []
  with on_workers.two_workers() as workers, on_workers.context(workers.addresses) as context:
    context.announce('round 1', lines.append)
    workers.processes[0].kill()
    workers.processes[0].wait()
    assert on_workers.double_and_sum()([1, 2, 3, 4])[0] == 20
    assert 'is lost' in lines[0]
    again = local_workers.LocalWorkers(1, f'--port={workers.addresses[0].rpartition(":")[2]}')
    try:
      loop = asyncio.new_event_loop()  # asyncio.run would leave none behind, which TFF looks for.
      assert loop.run_until_complete(in_an_event_loop(on_workers.double_and_sum()))[0] == 20
      loop.close()
      assert lines[1] == f'Round 1: worker {workers.addresses[0]} is back'
    finally:
      again.close()
