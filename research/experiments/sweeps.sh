# What the scripts of this folder share: each sources it with RUNS set, the folder of its runs.
set -eu
DIR=${1:?give the folder of the data as the first argument}
[ -d "$DIR" ] || { echo "$0: $DIR is no folder: give the folder of the data first" >&2; exit 2; }
shift
for name in "$@"; do
  grep -q "^$name() {" "$0" || { echo "$0: unknown experiment $name" >&2; exit 2; }
done
PY=${PY:-.venv/bin/python}
JOBS=${JOBS:-1}

sweep() { # FOLDER SWEEP'S-FLAGS -- TRAIN'S-FLAGS
  folder=$RUNS/$1
  shift
  $PY scripts/sweep.py --output_dir="$folder" --jobs="$JOBS" "$@"
}

report() { # FOLDER NAME REPORT'S-FLAGS-AND-MORE-FOLDERS
  folder=$RUNS/$1 name=$2
  shift 2
  $PY scripts/report.py "$folder" --output="results/$name" "$@"
}
