#!/bin/sh
# The pictures of the guide: a first run, buffered training, unavailable clients, accuracy by client.
#
# usage: sh results/guide_pictures/run.sh    See research/studies.sh.
. research/studies.sh

first_run() { # The picture is that of the run.
  train --flagfile=scripts/configs/digits.flags --output_dir="$RUNS/digits"
  if [ -f "$RUNS/digits/curves.png" ]; then # Not with PY=echo.
    mkdir -p "$RESULTS"
    cp "$RUNS/digits/curves.png" "$RESULTS/guide_first_run.png"
  fi
}

asynchronous() {
  train --task=digits --algorithm=scaffold --synchrony=buffered --buffer_size=5 --concurrency=20 --speed_sigma=1 \
    --rounds=1000 --output_dir="$RUNS/asynchronous/buffered"
  train --task=digits --algorithm=scaffold --clients_per_round=20 --speed_sigma=1 --rounds=100 \
    --output_dir="$RUNS/asynchronous/synchronous"
  report asynchronous guide_asynchronous --x=virtual_seconds --label_by=synchrony --formats=png
}

population() {
  train --algorithm=scaffold --availability=diurnal --seconds_per_step=5 --speed_sigma=0.5 --round_deadline=20 \
    --stragglers=partial --dropout_rate=0.1 --rounds_per_evaluation=1 --output_dir="$RUNS/population/diurnal"
  train --algorithm=scaffold --rounds_per_evaluation=1 --output_dir="$RUNS/population/always"
  report population guide_population --label_by=availability --formats=png
}

clients() {
  for algorithm in fed_dyn fed_avg; do
    train --algorithm=$algorithm --rounds_per_client_evaluation=10 --heldout_clients=0.1 --heldout_examples=0.2 \
      --personalization_epochs=5 --output_dir="$RUNS/clients/$algorithm"
  done
  report clients guide_clients --form=clients --clients=train --formats=png
}

parts first_run asynchronous population clients
