"""Facts about the schedules: closed forms, warm-up, tensors, errors."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import schedules

ROUNDS = [0, 1, 2, 7, 8, 499, 500, 999, 1000, 1499, 4000]

# Name, options, and the rate of round t for the base rate 0.3, written out by itself.
SCHEDULES = [
  ('constant', {}, lambda t: 0.3),
  ('inv_sqrt', {}, lambda t: 0.3 / math.sqrt(1 + t)),
  ('exp_decay', {}, lambda t: 0.3 * 10.0 ** -sum(t >= k for k in range(500, 9999, 500))),
  ('exp_decay', dict(factor=0.5, every=200), lambda t: math.ldexp(0.3, -math.floor(t / 200))),
  ('round_decay', {}, lambda t: 0.3 * math.exp(t * math.log(0.998))),
  ('diminishing', {}, lambda t: 2.4 / (8 + t)),
  ('diminishing', dict(kappa=2, local_steps=20), lambda t: 0.3 * 20 / (20 + 20 * t)),
]


@pytest.mark.parametrize('warmup', [0, 1, 600])
@pytest.mark.parametrize('name, options, rate', SCHEDULES)
def test_numbers_and_tensors_follow_the_formula_and_rise_linearly_to_it(
  name, options, rate, warmup
):
  schedule = schedules.build(name, 0.3, warmup_rounds=warmup, **options)
  traced = tf.function(schedule)
  for t in ROUNDS:
    expected = rate(t)
    if t < warmup:
      expected *= (t + 1) / warmup
    for integer in t, np.int32(t), np.int64(t):
      number = schedule(integer)
      assert type(number) is float
      assert number == pytest.approx(expected, rel=1e-12)
      tensor = tf.constant(integer)
      for number in schedule(tensor), traced(tensor):
        assert number.dtype == tf.float32
        assert number.shape == []
        # One unit in the last place: pow may round otherwise in the two worlds.
        np.testing.assert_allclose(number.numpy(), np.float32(schedule(t)), rtol=1.2e-7)


@pytest.mark.parametrize(
  'name, options, words',
  [
    ('constant', dict(base_rate=-1.0), 'base_rate must be finite and at least 0, found -1.0'),
    ('constant', {}, 'round_number must be at least 0, found -1: rounds count from 0.'),
    ('exp_decay', dict(factor=0.0), 'factor must be in (0, 1], found 0.0'),
    ('expdecay', {}, "unknown schedule 'expdecay'. Did you mean exp_decay?"),
    ('round_decay', dict(factr=0.9), "unknown option of round_decay 'factr'. Did you mean factor?"),
  ],
)
def test_a_bad_argument_is_refused(name, options, words):
  with pytest.raises(ValueError) as error:
    schedules.build(name, **{'base_rate': 0.1, **options})(-1)
  assert str(error.value).startswith(words)


@pytest.mark.parametrize(
  'schedule',
  [
    lambda t: 0.1 / (1 + t),
    lambda t: 0.1 if t < 3 else 0.0,
    lambda t: 0.1 + 0.1 * math.cos(0.01 * t),
    lambda t: 1.0 if t == 0 else 0.25,
    lambda t: {0: 1.0}.get(t, 0.25),
    lambda t: 2**-t,
    lambda t: tf.where(tf.equal(t, 0), 1.0, 0.25),
    schedules.RoundDecay(0.3),
  ],
)
def test_a_function_is_computed_in_tff_computations_as_in_python(schedule):
  with tf.Graph().as_default():  # As theirs are: == between tensors compares identities there.
    t = tf.compat.v1.placeholder(tf.int32, [])
    rate = schedules.in_graph(schedule)(t)
    with tf.compat.v1.Session() as session:
      rates = [session.run(rate, {t: i}) for i in range(5)]
  assert rates == [np.float32(schedule(i)) for i in range(5)]


def test_a_python_function_has_a_table_and_says_where_it_ends(monkeypatch):
  monkeypatch.setattr(schedules, 'TABLE_ROUNDS', 5)
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    t = tf.compat.v1.placeholder(tf.int32, [])
    rate = schedules.in_graph(math.sqrt)(t)
    assert session.run(rate, {t: 4}) == 2.0
    with pytest.raises(tf.errors.InvalidArgumentError, match='ends after 5 rounds'):
      session.run(rate, {t: 6})  # An optimizer asks for round 5's rate in the last round.
  assert schedules.in_graph(math.sqrt)(tf.constant(4)).numpy() == 2.0


@pytest.mark.parametrize(
  'schedule, kind, words',
  [
    (lambda t: {0: 0.1}[int(t)], TypeError, 't = 1, the round counted from 0: 1$'),
    (lambda t: 0.1 if t < 2 else -1.0, ValueError, 't = 2, .* at least 0, found -1.0$'),
    (lambda t: math.inf if t else 0.1, ValueError, 't = 1, .* at least 0, found inf$'),
    (lambda t: 1 / t, TypeError, 't = 0, .*: division by zero$'),
  ],
)
def test_a_function_that_gives_no_rate_is_refused_with_its_round(schedule, kind, words):
  traced = tf.function(schedules.in_graph(schedule), autograph=False)
  with pytest.raises(kind, match=f'the schedule fails for the int {words}'):
    traced(tf.constant(1))
