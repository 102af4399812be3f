"""research/benchmarks/workloads.py: clients with images have each its own, standardised."""

import numpy as np

from research.benchmarks import workloads

WORKLOAD = workloads.WORKLOADS['cifar10_iid']


def test_clients_with_images_have_each_its_own_standardised(tmp_path):
  rng = np.random.default_rng(0)
  arrays = {
    'x_train': rng.integers(0, 256, (150, 4, 4, 3), np.uint8),
    'y_train': np.arange(150),
  }
  np.savez(tmp_path / WORKLOAD.images, **arrays)
  clients = [workloads.client_arrays(WORKLOAD, c, str(tmp_path)) for c in range(3)]
  np.testing.assert_array_equal(np.concatenate([c['y'] for c in clients]), np.arange(150))
  x = np.concatenate([c['x'] for c in clients])
  assert x.dtype == np.float32
  pixels = arrays['x_train'].astype(np.float64)
  expected = (pixels - pixels.mean((0, 1, 2))) / pixels.std((0, 1, 2))
  np.testing.assert_allclose(x, expected, atol=1e-5)
