#!/bin/sh
# Experiments of the founding papers at small scale: trains what is missing, and writes results/NAME.*.
#
# usage: sh research/experiments/founding_papers.sh DIR [NAME ...]
#
# DIR holds letters.npz and mnist_digits.npz; by default all experiments of the list at the end are made. The same
# command again goes on with what is not complete.
RUNS=${RUNS:-runs/founding}
. "$(dirname "$0")/sweeps.sh"
# FedDyn's published code clips gradients at 10.
AdaBest='--flagfile=scripts/configs/drift_digits.flags --rounds_per_checkpoint=1000 --clip_norm=10'

# "AdaBest", figure 3: clients of equal and of unlike sizes, few and many of them.
balance() {
  for clients in 110 1100; do
    beta=0.96
    if [ $clients = 1100 ]; then beta=0.6; fi # Best of 0.2, 0.4, 0.6 at 1 % in results/participation.md.
    for spread in 0 0.3; do
      sweep "balance/$clients-$spread" --grid=seed=0,1,2 --grid=algorithm=fed_avg,scaffold_m,fed_dyn,ada_best -- \
        $AdaBest --beta=$beta --task_option=num_clients=$clients --task_option=unbalance=$spread
    done
  done
  report balance founding_balance --form=crossed --rows=task_option --columns=algorithm --metric=test_accuracy \
    --formats=md --title='Clients of equal and of unlike sizes'
}

# "AdaBest", figure 5: whether an algorithm that fails late fails on its training data too.
overfitting() {
  for name in scaffold fed_dyn ada_best; do
    sweep "overfitting/$name" --grid=seed=0,1,2 -- --flagfile=scripts/configs/stability_$name.flags
  done
  report overfitting founding_overfitting --label_by=algorithm --metric=train_accuracy,validation_accuracy \
    --title='2 of 60 clients a round, 2000 rounds'
}

# "AdaBest", figure 6: mu; IID clients.
mu() {
  sweep mu --grid=seed=0,1,2 --grid=algorithm=ada_best,fed_dyn --grid=mu=0.0025,0.005,0.01,0.02,0.04,0.08,0.16 -- \
    $AdaBest --task_option=alpha=inf
  report mu founding_mu --form=crossed --rows=algorithm --columns=mu --metric=test_accuracy \
    --title='mu'
  report mu founding_mu_norm --form=crossed --rows=algorithm --columns=mu --metric=theta_norm \
    --title='Norm of the model by mu'
}

# "AdaBest", figure 7: beta by participation.
beta() {
  sweep beta --grid=seed=0,1,2 --grid=clients_per_round=2,5,10,50 --grid=beta=0.4,0.8,0.9,0.96,1 -- \
    $AdaBest --algorithm=ada_best
  report beta founding_beta --form=crossed --rows=clients_per_round --columns=beta --metric=test_accuracy \
    --title='beta by participation, of 100 clients'
}

# FedDyn's published code clips the gradient at 10: SCAFFOLD/m where it diverges without.
clip() {
  for cell in '1100 10 1000' '110 10 1200' '110 100 200'; do
    set -- $cell
    sweep "clip/$1-$2" --grid=seed=0,1,2 --grid=task_option=alpha=0.03,alpha=0.3,alpha=inf --grid=clip_norm=10 -- \
      --flagfile=scripts/configs/participation_letters.flags --algorithm=scaffold_m --task_option=num_clients=$1 \
      --clients_per_round=$2 --rounds=$3 --rounds_per_checkpoint=$3 --data_dir="$DIR"
  done
  report clip founding_clip --form=crossed --rows=participation,task_option --columns=algorithm --metric=test_accuracy \
    --formats=md --title='SCAFFOLD/m with gradients clipped at 10'
}

# "Adaptive Federated Optimization": EXPDECAY by the number of local epochs E.
epochs() {
  for schedule in constant 'exp_decay --client_schedule_option=every=50'; do
    sweep "epochs/${schedule%% *}" --grid=seed=0,1,2 --grid=algorithm=fed_avg,fed_adagrad,fed_adam,fed_yogi \
      --grid=client_epochs=1,5,20 --grid=client_learning_rate=0.01,0.031623,0.1 -- --task=digits --rounds=150 \
      --rounds_per_evaluation=5 --rounds_per_checkpoint=150 --client_schedule=$schedule
  done
  report epochs founding_epochs --window=100 --form=crossed --rows=client_epochs,client_schedule --columns=algorithm \
    --formats=md --title='Local epochs and a decreasing client rate'
}

# "AdaBest", theorem 3.1 and appendix C.2: the cosine of h and g-bar, and the states of server and clients.
storage() {
  sweep storage --grid=seed=0,1,2 --grid=algorithm=scaffold,scaffold_m,fed_dyn,ada_best,fed_cm -- $AdaBest
  report storage founding_storage --metric=h_cosine --columns=mean,server_mb,client_mb --formats=md \
    --title="The estimate h: its cosine with the pseudo-gradient, and what is stored"
}

# "Communication-Efficient Learning", table 1: the share C of the clients, MNIST's 2NN.
fraction() {
  sweep fraction --grid=clients_per_round=1,10,20,50,100 --grid=task_option=split=iid,split=shards -- --task=mnist_2nn \
    --algorithm=fed_avg --batch_size=10 --client_learning_rate=0.1 --rounds=400 --rounds_per_evaluation=1 \
    --rounds_per_checkpoint=100 --target=0.97 --stop_at_target --data_dir="$DIR"
  report fraction founding_fraction --target=0.97 --columns=rounds,reached,seconds --formats=md \
    --title='Rounds to 97 % by the clients of a round, of 100'
}

for name in ${*:-balance overfitting mu beta clip epochs fraction storage}; do
  $name
done
