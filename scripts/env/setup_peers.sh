#!/bin/sh
# Makes an environment in .peers/ for each toolkit that research/peer_vectors.py compares with.
# They cannot share the project's own: each pins other versions of what it builds on. Those that
# build on PyTorch share .peers/torch, which has it and packages that several of them import, and
# have of their other requirements only what the compared classes import.
#
# usage: sh scripts/env/setup_peers.sh [NAME ...]   (all without a name; the names are below)
# fair_flearn is for research/experiments/beside_fair_flearn.py alone.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3.11}
common='torchvision numpy pandas scikit-learn matplotlib seaborn omegaconf hydra-core rich psutil'
names='pfl flower fedjax fluke pfllib fl_bench nvflare appfl fl4health fair_flearn'

make_one() {
  echo "peers: making .peers/$1 ..."
  "$python" -m venv ".peers/$1"
  install "$@"
}

install() {
  peer_name=$1
  shift
  ".peers/$peer_name/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}

# An environment that finds PyTorch in .peers/torch.
with_torch() {
  # shellcheck disable=SC2086
  [ -x .peers/torch/bin/python ] || make_one torch torch==2.13.0 $common
  echo "peers: making .peers/$1 ..."
  "$python" -m venv ".peers/$1"
  for folder in "$PWD"/.peers/torch/lib/python*/site-packages; do
    for own in ".peers/$1"/lib/python*/site-packages; do
      echo "$folder" > "$own/shared_torch.pth"
    done
  done
}

# Folders of a repository, at one commit: a toolkit that is no package.
source_of() {
  source=".peers/$1/source"
  git clone --quiet --no-checkout "https://github.com/$2" "$source"
  commit=$3
  shift 3
  git -C "$source" sparse-checkout set "$@"
  git -C "$source" checkout --quiet --detach "$commit"
}

mkdir -p .peers
# shellcheck disable=SC2086
[ "$#" -gt 0 ] || set -- $names
for peer in "$@"; do
  case "$peer" in
    pfl) with_torch pfl && install pfl pfl==0.6.0 ;;
    flower) make_one flower flwr==1.41.0 ;;
    fedjax) make_one fedjax fedjax==0.0.17 jax==0.10.2 ;;
    fluke)
      with_torch fluke
      install fluke --no-deps fluke-fl==0.8.1
      install fluke torchmetrics datasets typer diskcache cerberus requests pyyaml
      ;;
    pfllib)
      with_torch pfllib
      source_of pfllib TsingZ0/PFLlib d832e76f6a23b833038949ec1e4fdefe63a4d350 system
      install pfllib h5py cvxpy calmsize
      ;;
    fl_bench)
      with_torch fl_bench
      source_of fl_bench KarhouTam/FL-bench 06e658bca5af6ce732e25bb7c0f8be321e14a85e src data/utils
      install fl_bench ray nvidia-ml-py
      ;;
    nvflare) with_torch nvflare && install nvflare nvflare==2.9.0 ;;
    appfl)
      with_torch appfl
      install appfl --no-deps appfl==1.12.0 opacus==1.6.0
      install appfl opt_einsum
      ;;
    fl4health) # It asks for Python 3.10, PyTorch 2.6 and much that these classes do not import.
      with_torch fl4health
      install fl4health --no-deps --ignore-requires-python fl4health==0.4.2 opacus==1.6.0
      install fl4health --no-deps qpth peft ecos
      install fl4health flwr==1.18.0 torchmetrics tqdm opt_einsum dm-tree wandb
      ;;
    fair_flearn)
      make_one fair_flearn numpy tqdm
      source_of fair_flearn litian96/fair_flearn f09797113147b5ae66eb0348e93f575d5d63baed flearn
      ;;
    *)
      echo "setup_peers.sh: no peer '$peer': $names" >&2
      exit 2
      ;;
  esac
done
