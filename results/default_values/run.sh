#!/bin/sh
# The main hyperparameter of the methods of 2019 to 2026 around its default, on scikit-learn's digits.
#
# usage: sh results/default_values/run.sh    See research/studies.sh. Half an hour on a free core.
. research/studies.sh

Options='--task=digits --rounds=100 --rounds_per_evaluation=10 --rounds_per_checkpoint=100'

shared() { # One model for all.
  while read -r algorithm name values; do
    sweep shared/$algorithm --grid=seed=0,1,2 --grid=$name=$values -- --algorithm=$algorithm $Options
    report shared/$algorithm $algorithm --form=crossed --rows=algorithm --columns=$name --formats=md
  done <<END
moon contrast 0.1,1,5,10
fed_ntd distillation 0.1,0.3,1,3
fed_lc calibration 0.1,0.3,1,3
q_fed_avg q 0.1,0.3,1,3
fed_lesam rho 0.01,0.05,0.2,0.5
fed_smoo mu 0.01,0.03,0.1,0.3
fed_acg lookahead 0.5,0.7,0.85,0.95
fed_dc drift_weight 0.01,0.03,0.1,0.3
fed_init relaxation 0.01,0.1,0.3,0.5
fed_adamw global_share 0.1,0.3,0.5,0.7
fed_muon global_share 0.1,0.3,0.5,0.7
fed_lada global_share 0.5,0.7,0.9,0.95
END
}

personal() { # A model for each client, on a fifth of its examples.
  while read -r algorithm name values; do
    sweep personal/$algorithm --grid=seed=0,1,2 --grid=$name=$values -- --algorithm=$algorithm $Options \
      --rounds_per_client_evaluation=100 --heldout_examples=0.2
    report personal/$algorithm $algorithm --form=clients --metric=own_accuracy --label_by=$name --formats=md
  done <<END
ditto lam 0.03,0.1,0.3,1
apfl alpha_mix 0.25,0.5,0.75,0.9
p_fed_me moreau_lam 5,15,30,60
fed_proto proto_weight 0.1,0.3,1,3
fed_ala ala_rate 0.3,1,3,10
fed_rep head_share 0.25,0.5,0.75,0.9
END
}

parts shared personal
