"""Processor seconds of the two ways of client states in one process: through the trainer, and shards."""
import sys, os, time, pickle, tempfile

import numpy as np, tensorflow as tf, tree
from tff_adaptive import engine, algorithms, corrections
from tff_adaptive.client import Batching, ClientTraining, client_arrays
from tff_adaptive.runs import sharded_store
from research.benchmarks import workloads, client_states as cs, machine
ctx = engine.set_subround_context(8)
cpu = time.process_time
IDS = cs.IDS
arrays = workloads.clients(cs.WORKLOAD)
cohort = [client_arrays(d['x'], d['y'], i) for i, d in enumerate(arrays)]
def ray_copy(obj):
  """What Ray does with an argument or result: pickle protocol 5, buffers copied into shared memory, read there."""
  buffers = []
  octets = pickle.dumps(obj, protocol=5, buffer_callback=buffers.append)
  shared = [np.frombuffer(b.raw(), np.uint8).copy() for b in buffers]
  return pickle.loads(octets, buffers=shared)
def to_tensors(states): return [[tf.constant(l) for l in tree.flatten(s)] for s in states]
dyn, avg = cs.build('fed_dyn'), cs.build('fed_avg')
st_avg = avg.initialize()
with tempfile.TemporaryDirectory(dir='.') as folder:
  stores = {}
  for kind in ('memory', 'shards'):
    os.mkdir(os.path.join(folder, kind))
    stores[kind] = sharded_store.open_store(os.path.join(folder, kind, 'state.sqlite'), dyn.initial_client_state, kind)
  print('bytes', stores['memory'].state_bytes, machine.describe(), flush=True)
  for r in range(1, 5):
    t = cpu(); st_avg = avg.next(st_avg, cohort).state; np.asarray(st_avg.global_model_weights.trainable[0]); train = cpu() - t
    out = {}
    # Through the trainer: get, Ray's copy, tensors; tensors' arrays, Ray's copy, put.
    s = stores['memory']
    t = cpu()
    loaded = to_tensors(ray_copy([tree.flatten(x) for x in s.get(IDS)]))
    out['memory read'] = cpu() - t
    new = [[l.numpy() for l in leaves] for leaves in loaded]
    new = [[a + np.float32(1) for a in leaves] for leaves in new]
    t = cpu()
    back = ray_copy([[np.asarray(a) for a in leaves] for leaves in new])
    s.put(IDS, [tree.unflatten_as(dyn.initial_client_state, x) for x in back], r)
    out['memory write'] = cpu() - t
    t = cpu(); s.commit(r, st_avg); out['memory commit'] = cpu() - t
    s = stores['shards']
    s._own()
    t = cpu()
    loaded = to_tensors(s.source.load(s._keys(IDS)))
    out['shards read'] = cpu() - t
    t = cpu()
    places = []
    keys = s._keys(IDS)
    vals = [tree.unflatten_as(dyn.initial_client_state, x) for x in new]
    for i in range(0, 100, 13):
      places += s.source.store(keys[i:i+13], vals[i:i+13])
    s.put(IDS, places, r)
    out['shards write'] = cpu() - t
    t = cpu(); s.commit(r, st_avg); out['shards commit'] = cpu() - t
    print(r, f'train {train:.2f}', {k: round(v, 2) for k, v in out.items()}, flush=True)
