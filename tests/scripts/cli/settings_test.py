"""What settings decide: what a resumed run may change, and how clients train."""

from scripts.cli import resolve, settings


def test_a_resumed_run_may_change_what_changes_no_number():
  assert {*settings.CHANGE_NO_NUMBER} == {
    *('output_dir', 'data_dir', 'log_to', 'resume_from', 'target', 'stop_at_target'),
    *('virtual_seconds_per_evaluation', 'rounds_per_evaluation', 'rounds_per_checkpoint'),
    *('rounds_per_client_evaluation', 'client_evaluation_clients', 'personalization_epochs'),
    *('client_state_store', 'parallel_clients', 'ray'),
    *('ray_workers', 'cpus_per_worker', 'memory_per_worker'),
  }


def test_clients_stop_at_their_own_step_only_where_stragglers_do_a_part():
  task = type('Task', (), {'unit_starts': None})
  for more, limits in (({}, False), ({'stragglers': 'partial', 'round_deadline': 9.0}, True)):
    found = resolve.resolve(client_epochs=2, **more)
    assert found.client_training(task).batching.step_limits == limits
  assert found.client_training(task).batching.epochs == 2
  assert found.client_training(task, epochs=7).batching.epochs == 7
  for name, own in (('fed_avg', (100, False, True)), ('scaffnew', (10, True, False))):
    found = resolve.resolve(algorithm=name, task='fed_heart' if own[2] else 'digits')
    for epochs, how in ((None, own), (2, (None, False, False))):  # Fine-tuning has epochs.
      made = found.client_training(task, epochs).batching
      assert (made.local_steps, made.random_local_steps, made.continue_batches) == how
