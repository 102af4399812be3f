"""Mistakes that a person thought of and that tests once let pass; see `research.mutations`."""

from typing import NamedTuple


class Mistake(NamedTuple):
  """A passage of a file, what it becomes, and the tests that must notice."""

  path: str
  right: str
  wrong: str
  tests: tuple[str, ...]


_BUILDERS = 'tests/tff_adaptive/algorithms/builders_test.py'
_SCHEDULE_TESTS = (
  f'{_BUILDERS}::test_a_server_schedule_replaces_the_server_optimizers_rate[fed_avg]',
)
_NOBODY_TESTS = (f'{_BUILDERS}::test_a_round_whose_clients_all_have_no_examples_changes_nothing',)
_OPTION_TEST = (
  'tests/tff_adaptive/algorithms/registered_test.py'
  '::test_an_option_of_the_server_changes_what_is_learnt'
)
_BIAS_TESTS = (f'{_OPTION_TEST}[fed_adam-bias_correction-values2]',)
_V_TESTS = (f'{_OPTION_TEST}[fed_adam-initial_v-values3]',)
_MOMENTUM_TESTS = (f'{_OPTION_TEST}[fed_avgm-momentum-values0]',)
_FED_OPT = 'tff_adaptive/algorithms/fed_opt_builders.py'
_SOURCES = 'tff_adaptive/client/batch_sources.py'
_SOURCES_TEST = 'tests/tff_adaptive/client/batch_sources_test.py::test_'
_SEED_TESTS = (f'{_SOURCES_TEST}every_bit_of_a_seed_counts',)
_SOURCES_TESTS = (
  f'{_SOURCES_TEST}the_full_gradient_of_whole_arrays_is_the_mean_over_all_examples',
  f'{_SOURCES_TEST}the_full_gradient_of_a_dataset_weighs_its_batches_by_their_size',
)
_STATE_DATABASE = 'tff_adaptive/runs/state_database.py'
_RUN_FILES = 'tests/tff_adaptive/training/run_files_test.py'
_SYNC_TESTS = (f'{_RUN_FILES}::test_every_checkpoint_is_on_the_disk_before_the_run_goes_on',)
_COMMIT_TESTS = (
  'tests/tff_adaptive/runs/state_database_test.py'
  '::test_a_file_is_on_the_disk_trusts_no_schema_and_may_be_held',
)
_IMAGES_TESTS = (
  'tests/tasks/images_test.py::test_embedded_letters_are_standardised_by_the_training_split',
)
_ADAM = """    beta2=beta2,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_fed_yogi("""

MISTAKES = {
  'server_schedule ignored': Mistake(
    'tff_adaptive/algorithms/builders.py',
    "    server_schedule = components.check_rate('server_schedule', server_schedule)",
    '    server_schedule = None',
    _SCHEDULE_TESTS,
  ),
  'FedAdam without bias_correction': Mistake(
    _FED_OPT,
    _ADAM,
    _ADAM.replace('    bias_correction=bias_correction,\n', ''),
    _BIAS_TESTS,
  ),
  'FedAdam without initial_v': Mistake(
    _FED_OPT,
    _ADAM,
    _ADAM.replace('    initial_v=initial_v,\n', ''),
    _V_TESTS,
  ),
  'FedAvgM without momentum': Mistake(_FED_OPT, ', momentum=momentum', '', _MOMENTUM_TESTS),
  'a full gradient of 512 examples only': Mistake(
    _SOURCES,
    'tf.while_loop(lambda _, start: start < n,',
    'tf.while_loop(lambda _, start: start < 1,',
    _SOURCES_TESTS,
  ),
  'a full gradient of slices that count the same': Mistake(
    _SOURCES,
    'share = tf.cast(stop - start, tf.float32) / self.num_examples',
    'share = tf.cast(tf.minimum(size, n), tf.float32) / self.num_examples',
    _SOURCES_TESTS,
  ),
  'a full gradient of batches that count the same': Mistake(
    _SOURCES,
    'size = tf.cast(tf.shape(tf.nest.flatten(batch)[0])[0], tf.float32)\n      g, _',
    'size = tf.constant(1.0)\n      g, _',
    _SOURCES_TESTS,
  ),
  'the high bits of the seed dropped': Mistake(
    _SOURCES, 'seed >> 31 & 0x7FFFFFFF]', '0]', _SEED_TESTS
  ),
  'a round without a usable update is used': Mistake(
    'tff_adaptive/algorithms/server_correction.py',
    " & (sums['used'] > 0)",
    '',
    _NOBODY_TESTS,
  ),
  'a torn last line is read': Mistake(
    'tff_adaptive/runs/metrics_file.py',
    " if line.endswith('\\n')",
    '',
    ('tests/tff_adaptive/runs/metrics_file_test.py',),
  ),
  'rows not on the disk before a checkpoint relies on them': Mistake(
    'tff_adaptive/training/run_files.py', 'self.log.sync()', 'pass', _SYNC_TESTS
  ),
  'sync that does not': Mistake(
    'tff_adaptive/runs/metrics_log.py',
    'os.fsync(self._file.fileno())',
    'pass',
    ('tests/tff_adaptive/runs/metrics_log_test.py',),
  ),
  'commits not waited for': Mistake(
    _STATE_DATABASE, 'synchronous=FULL', 'synchronous=OFF', _COMMIT_TESTS
  ),
  'statistics of the test split': Mistake(
    'tasks/images.py', 'pixel_statistics(train.x)', 'pixel_statistics(test.x)', _IMAGES_TESTS
  ),
}
