#!/bin/sh
# Client rates of the methods of 2019 to 2026 around their defaults, on scikit-learn's digits.
#
# usage: sh results/default_rates/run.sh    See research/studies.sh. Twenty minutes on a free core.
. research/studies.sh

Options='--rounds=100 --rounds_per_evaluation=10 --rounds_per_checkpoint=100'

shared() { # One model for all.
  sweep shared --grid=algorithm=fed_avg,moon,fed_lc,fed_ntd,q_fed_avg,afl,fed_lesam,fed_smoo,fed_varp,fed_acg,fed_dc,fed_init \
    --grid=client_learning_rate=0.01,0.03,0.1,0.3 -- --task=digits $Options
  report shared shared --form=crossed --rows=algorithm --columns=client_learning_rate
}

adaptive() { # Their rates are of another size.
  sweep adaptive --grid=algorithm=fed_adamw,fed_muon,fed_lada \
    --grid=client_learning_rate=0.001,0.003,0.01,0.03 -- --task=digits $Options
  report adaptive adaptive --form=crossed --rows=algorithm --columns=client_learning_rate
}

Clients='--rounds_per_client_evaluation=100 --heldout_examples=0.2'

personal() { # A model for each client.
  sweep personal --grid=algorithm=fed_per,lg_fed_avg,fed_rep,ditto,apfl,p_fed_me,fed_ala,fed_proto \
    --grid=client_learning_rate=0.01,0.03,0.1,0.3 -- --task=digits $Options $Clients
  report personal personal --form=clients --metric=own_accuracy --label_by=algorithm,client_learning_rate --formats=md,csv
}

tuned() { # One model for all, of which each client's is made by an epoch of fine-tuning.
  sweep tuned --grid=algorithm=fed_avg,fed_babu,per_fed_avg \
    --grid=client_learning_rate=0.01,0.03,0.1,0.3 -- --task=digits $Options $Clients --personalization_epochs=1
  report tuned tuned --form=clients --metric=personalized_accuracy --label_by=algorithm,client_learning_rate --formats=md,csv
}

parts shared adaptive personal tuned
