# What every results/NAME/run.sh shares. It is read in the root of the checkout: . research/studies.sh
#
# usage of a study: sh results/NAME/run.sh [DIR] [PART ...]
#
# DIR is the folder with the data, for the studies that read any (meta.json names the files). PARTs are functions of
# run.sh; by default it runs all that its end lists. The same command again goes on with what is not complete.
#
#   JOBS=2 sh results/NAME/run.sh DIR    trains two runs at a time
#   SMOKE=1 sh results/NAME/run.sh DIR   trains two rounds of the first value of each list, writes no result
#   PY=echo sh results/NAME/run.sh DIR   shows the commands
set -eu
STUDY=$(basename "$(dirname "$0")")
PY=${PY:-.venv/bin/python}
JOBS=${JOBS:-1}
RUNS=${RUNS:-runs/$STUDY}
RESULTS=results/$STUDY
if [ -n "${SMOKE:-}" ]; then
  RUNS=${RUNS}_smoke
  RESULTS=$RUNS/results
fi

DIR=${1:-}
if grep -q '\$DIR' "$0"; then
  [ -d "$DIR" ] || { echo "$0: '$DIR' is no folder: give the folder of the data first" >&2; exit 2; }
fi
[ $# = 0 ] || shift
for part in "$@"; do
  grep -q "^$part() {" "$0" || { echo "$0: unknown part $part" >&2; exit 2; }
done
PARTS=$*

parts() { # NAMES: runs these parts, or those that the command line names.
  for part in ${PARTS:-$*}; do
    $part
  done
}

train() { # TRAIN'S-FLAGS: for a run that no sweep makes
  if [ -n "${SMOKE:-}" ]; then
    set -- "$@" --rounds=2 --rounds_per_evaluation=1
  fi
  $PY scripts/train.py "$@"
}

sweep() { # FOLDER SWEEP'S-FLAGS -- TRAIN'S-FLAGS
  folder=$RUNS/$1
  shift
  if [ -n "${SMOKE:-}" ]; then
    for argument in "$@"; do # Each list of values keeps its first one.
      shift
      case $argument in --grid=*) argument=${argument%%,*} ;; esac
      set -- "$@" "$argument"
    done
    set -- "$@" --rounds=2 --rounds_per_evaluation=1
  fi
  $PY scripts/sweep.py --output_dir="$folder" --jobs="$JOBS" "$@"
}

report() { # FOLDER NAME REPORT'S-FLAGS-AND-MORE-FOLDERS: writes NAME.* of the study
  folder=$RUNS/$1 name=$2
  shift 2
  $PY scripts/report.py "$folder" --output="$RESULTS/$name" "$@"
}

program() { # NAME FLAGS: a program of research/, where SMOKE's flags are the study's own
  name=$1
  shift
  $PY -m "research.$name" "$@"
}
