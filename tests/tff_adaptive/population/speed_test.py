"""How long clients take."""

import numpy as np
import pytest

from tff_adaptive import population

IDS = [f'c{i}' for i in range(3000)]


def test_alike_clients_and_those_with_profiles_take_what_division_says():
  times = population.Speed(0.5, downlink=4.0, uplink=2.0).times(IDS[:3], 0, 12_000_000, 1_000_000)
  np.testing.assert_array_equal(times.download, [3.0] * 3)
  np.testing.assert_array_equal(times.step, [0.5] * 3)
  np.testing.assert_array_equal(times.upload, [0.5] * 3)
  profiles = {'uplink': {'a': 0.5, 'b': 0.25, 'stranger': 1.0}}
  times = population.Speed(profiles=profiles).times(['b', 'a'], 0, 10_000_000, 1_000_000)
  np.testing.assert_array_equal(times.upload, [4.0, 2.0])
  np.testing.assert_array_equal(times.download, [1.0, 1.0])


def test_log_normal_times_have_their_median_and_sigma():
  speed = population.Speed(0.2, speed_sigma=0.7, bandwidth_sigma=0.4)
  times = speed.times(IDS, 3, 10_000_000, 1_000_000)
  for logs, median, sigma in (
    (np.log(times.step), 0.2, 0.7),
    (np.log(times.download), 1.0, 0.4),
    (np.log(times.upload), 1.0, 0.4),
  ):
    assert abs(logs.mean() - np.log(median)) < 4 * sigma / np.sqrt(len(IDS))
    assert logs.std() == pytest.approx(sigma, rel=4 / np.sqrt(2 * len(IDS)))
  # One draw of a client for both links, another for its steps.
  np.testing.assert_allclose(times.download, times.upload)
  assert abs(np.corrcoef(np.log(times.step), np.log(times.upload))[0, 1]) < 0.08


def test_a_client_keeps_its_speed_whoever_else_there_is():
  speed = population.Speed(speed_sigma=10.0, bandwidth_sigma=1.0)
  few = speed.times(IDS[:5], 1, 1000, 1000)
  many = speed.times(IDS[:50], 1, 1000, 1000)
  for one, other in zip(few, many):
    np.testing.assert_array_equal(one, other[:5])
  assert (speed.times(IDS[:5], 2, 1000, 1000).step != few.step).all()


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: population.Speed(0.0), 'seconds_per_step must be finite and above 0'),
    (lambda: population.Speed(speed_sigma=-1), 'speed_sigma must be finite and at least 0'),
    (lambda: population.Speed(speed_sigma=10.5), 'speed_sigma must be at most 10, found 10.5'),
    (lambda: population.Speed(bandwidth_sigma=700), 'bandwidth_sigma must be at most 10, found'),
    (lambda: population.Speed(profiles={'up': {}}), "'up'; it may have seconds_per_step, downl"),
    (lambda: population.Speed(profiles={'uplink': {'a': 0}}), "uplink of client 'a' must be"),
    (
      lambda: population.Speed(profiles={'uplink': {'a': 1}}).times(['a', 'b'], 0, 1, 1),
      "1 of 2 clients have no uplink, 'b'",
    ),
  ],
)
def test_what_cannot_be_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
