# What every results/NAME/run.sh shares. It is read in the root of the checkout: . research/studies.sh
#
# usage of a study: sh results/NAME/run.sh [DIR] [PART ...]
#
# DIR is the folder with the data, for the studies that read any (meta.json names the files). PARTs are functions of
# run.sh; by default it runs all that its end lists. The same command again goes on with what is not complete.
#
#   JOBS=2 sh results/NAME/run.sh DIR    trains two runs at a time
#   SMOKE=1 sh results/NAME/run.sh DIR   trains two rounds of all algorithms with the first value of each other list, and
#                                        writes no result
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

DIR=
if grep -q '\$DIR' "$0"; then
  DIR=${1:-}
  [ -d "$DIR" ] || { echo "$0: '$DIR' is no folder: give the folder of the data first" >&2; exit 2; }
  shift
elif [ -d "${1:-}" ]; then
  shift # So that one command can be given to all studies.
fi
for part in "$@"; do
  grep -q "^$part() {" "$0" || { echo "$0: unknown part $part" >&2; exit 2; }
done
PARTS=$*

parts() { # NAMES: runs these parts, or those that the command line names.
  for _part in ${PARTS:-$*}; do
    $_part
  done
}

train() { # TRAIN'S-FLAGS: for a run that no sweep makes
  if [ -n "${SMOKE:-}" ]; then
    set -- "$@" --rounds=2 --rounds_per_evaluation=1
  fi
  $PY scripts/train.py "$@"
}

# The shell's functions share their variables: those below begin with _, so that run.sh may use any other name.

sweep() { # FOLDER SWEEP'S-FLAGS -- TRAIN'S-FLAGS
  _folder=$RUNS/$1
  shift
  if [ -n "${SMOKE:-}" ]; then
    for _argument in "$@"; do # Each list of values keeps its first one, but that of algorithms: others may need one of them.
      shift
      case $_argument in
        --grid=algorithm=*) ;;
        --grid=*) _argument=${_argument%%,*} ;;
      esac
      set -- "$@" "$_argument"
    done
    set -- "$@" --rounds=2 --rounds_per_evaluation=1
  fi
  $PY scripts/sweep.py --output_dir="$_folder" --jobs="$JOBS" "$@"
}

report() { # FOLDER NAME REPORT'S-FLAGS-AND-MORE-FOLDERS: writes NAME.* of the study
  _folder=$RUNS/$1
  _name=$2
  shift 2
  $PY scripts/report.py "$_folder" --output="$RESULTS/$_name" "$@"
}

program() { # NAME FLAGS: a program of research/, where SMOKE's flags are the study's own
  _name=$1
  shift
  $PY -m "research.$_name" "$@"
}
