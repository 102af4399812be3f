"""The transformer against plain NumPy, a sentence and a head at a time."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive_tasks.models import transformer

TOKENS = 7
STEPS = 5
SIZE = 6
HEADS = 2
BLOCKS = 2


def drawn(seed=0):
  """Weights of which none is left at 0 or 1."""
  rng = np.random.default_rng(seed)
  shapes = [w.shape for w in transformer.initial_weights(0, TOKENS, STEPS, SIZE, BLOCKS)]
  return [(0.5 * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def logits(weights, x):
  """[B, T] -> [B, T, vocabulary], as the tasks call it."""
  embedded = tf.gather(weights[0], tf.transpose(x))
  return tf.transpose(transformer.run(weights[1:], embedded, HEADS), [1, 0, 2]).numpy()


def norm(h, scale, shift):
  return (h - h.mean()) / np.sqrt(h.var() + 1e-5) * scale + shift


def gelu(x):
  return np.array([v / 2 * (1 + math.erf(v / 2**0.5)) for v in x])


def by_hand(weights, tokens):
  """The logits after each token, with float64 vectors."""
  queue = [w.astype(np.float64) for w in weights]
  embedding = queue.pop(0)
  positions = queue.pop(0)
  h = [embedding[token] + positions[t] for t, token in enumerate(tokens)]
  wide = SIZE // HEADS
  for _ in range(BLOCKS):
    s1, b1, mix, mix_b, out, out_b, s2, b2, up, up_b, down, down_b = (
      queue.pop(0) for _ in range(12)
    )
    parts = [np.split(norm(v, s1, b1) @ mix + mix_b, 3) for v in h]
    attended = []
    for t in range(len(h)):
      heads = []
      for head in range(HEADS):
        cut = slice(head * wide, (head + 1) * wide)
        scores = np.array([parts[t][0][cut] @ parts[u][1][cut] for u in range(t + 1)])
        share = np.exp(scores / wide**0.5)
        share /= share.sum()
        heads.append(sum(share[u] * parts[u][2][cut] for u in range(t + 1)))
      attended.append(np.concatenate(heads))
    h = [v + a @ out + out_b for v, a in zip(h, attended)]
    h = [v + gelu(norm(v, s2, b2) @ up + up_b) @ down + down_b for v in h]
  scale, shift, kernel, bias = queue
  return np.array([norm(v, scale, shift) @ kernel + bias for v in h])


def test_logits_are_those_of_the_formulas():
  weights = drawn()
  x = np.random.default_rng(1).integers(0, TOKENS, [3, STEPS])
  results = logits(weights, x)
  for result, tokens in zip(results, x):
    np.testing.assert_allclose(result, by_hand(weights, tokens), rtol=1e-4, atol=1e-5)


def test_initial_weights_begin_as_in_gpt_2():
  weights = transformer.initial_weights(0, 90, 80, 64, 4)
  assert np.std(weights[0]) == pytest.approx(0.02, rel=0.05)
  assert np.std(weights[4]) == pytest.approx(0.02, rel=0.05)
  assert np.std(weights[6]) == pytest.approx(0.02 / 8**0.5, rel=0.05)
