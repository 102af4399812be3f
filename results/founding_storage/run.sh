#!/bin/sh
# "AdaBest", theorem 3.1 and appendix C.2: the cosine of h and the pseudo-gradient, and the sizes of the states.
#
# usage: sh results/founding_storage/run.sh    See research/studies.sh.
. research/studies.sh

# FedDyn's published code clips gradients at 10.
AdaBest='--flagfile=scripts/configs/drift_digits.flags --rounds_per_checkpoint=1000 --clip_norm=10'
sweep storage --grid=seed=0,1,2 --grid=algorithm=scaffold,scaffold_m,fed_dyn,ada_best,fed_cm -- $AdaBest
report storage founding_storage --metric=h_cosine --columns=mean,server_mb,client_mb --formats=md \
  --title='The estimate h: its cosine with the pseudo-gradient, and what is stored'
