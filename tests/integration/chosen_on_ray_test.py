"""Rules for cohorts and robust rules on Ray: cohorts, ledger and bits of one process."""

import collections

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import fakes, small_problem
from tff_adaptive import aggregation, engine, population, training
from tff_adaptive.runs import ledger

pytest.importorskip('ray')
pytestmark = [pytest.mark.xdist_group('ray'), pytest.mark.exhaustive]

RULES = {
  'oort': population.Oort(),
  'power_of_choice': population.PowerOfChoice(candidates=5),
  'importance': population.Importance('uniform'),
}


class Clients:
  """The clients of the small problem, which workers load by themselves."""

  client_ids = tuple(f'c{i}' for i in range(small_problem.NUM_CLIENTS))

  def num_examples(self, client_id):
    return small_problem.NUM_EXAMPLES[int(client_id[1:])]

  def load(self, client_id):
    x, y = small_problem.clients()[int(client_id[1:])]
    return collections.OrderedDict(x=x, y=y)


@pytest.mark.parametrize(
  'rule, aggregator',
  [('oort', 'median'), ('power_of_choice', 'multi_krum'), ('importance', 'centred_clipping')],
)
def test_ray_gives_the_cohorts_and_the_bits_of_one_process(
  ray_workers, graph, tmp_path, rule, aggregator
):
  chosen = RULES[rule]
  model = small_problem.linear_model()
  cohort = aggregation.Cohort(4, model.initial_weights[0])
  factory = aggregation.build_aggregator(aggregator, {}, cohort)
  process = small_problem.process(
    'fed_avg',
    0.2,
    small_problem.linear_model,
    client_weighting='uniform',
    measures='full',
    cohort_weights=rule == 'importance',
    aggregator=aggregation.ClientNormsFactory(factory, cosines=True),
  )
  config = training.TrainingConfig(rounds=5, clients_per_round=4, cohort=chosen, ledger=True)
  states = []
  tables = []
  for name, context in (('one', engine.SubroundContext(4, server=graph)), ('ray', ray_workers)):
    folder = str(tmp_path / name)
    with tff.framework.get_context_stack().install(context), fakes.no_figures():
      result = training.train(
        process,
        Clients(),
        lambda weights: {'loss': 1.0},
        config,
        output_dir=folder,
        client_losses=training.build_client_losses(model),
        show_progress=False,
      )
    states.append([np.asarray(leaf) for leaf in tf.nest.flatten(result.state)])
    tables.append(ledger.read(folder))
  np.testing.assert_equal(*states)
  pd.testing.assert_frame_equal(*tables, check_exact=True)
  assert tables[0]['cosine_mean'].notna().all()
