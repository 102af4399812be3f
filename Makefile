# `make train` and `make test` set everything up by themselves the first time; see `make help`.

PY := .venv/bin/python
# What needs neither a trained process nor a program of its own.
FAST := -m 'not slow and not exhaustive' tests/integration/house_test.py tests/research \
  $(addprefix tests/tff_adaptive/,_utils aggregation corrections optimizers population registry reports \
  costs_test.py schedules_test.py) tests/tasks/data
export TF_CPP_MIN_LOG_LEVEL ?= 3

.DEFAULT_GOAL := help
.PHONY: help env env-dev env-gpu gpu-check vectors train check test test-all tools lint typecheck format size docs audit lock clean

help:  ## This list.
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

env:  ## Make .venv with the locked dependencies (PYTHON=... to choose the Python).
	@PYTHON='$(PYTHON)' sh scripts/env/setup_env.sh

env-dev:  ## Make .venv with the tools of tests and documentation too.
	@PYTHON='$(PYTHON)' sh scripts/env/setup_env.sh --dev

env-gpu:  ## Make .venv with TensorFlow's build with CUDA for --device=gpu too (3 GB more).
	@PYTHON='$(PYTHON)' sh scripts/env/setup_env.sh --gpu

train: env  ## Train FedYogi on handwritten digits (ARGS='--rounds=50 ...' for other flags).
	@$(PY) scripts/train.py --flagfile=scripts/configs/digits.flags $(ARGS)

test: lint tools  ## Check format and types and run all tests (ARGS='-k yogi' for some).
	$(PY) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(ARGS)

test-all: lint tools  ## The same with all vectors, notebooks and programs of TFF: half an hour.
	$(PY) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder -m '' $(ARGS)

check: lint  ## Check style and types and run the fast tests: for development.
	$(PY) -m pytest -n 3 --dist loadgroup --no-loadscope-reorder $(FAST) $(ARGS)

tools:
	@sh scripts/env/setup_test_tools.sh </dev/null

lint: typecheck  ## Check style, format and types.
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

typecheck: env-dev  ## Check types.
	$(PY) -m mypy

format: env-dev  ## Format, and fix what ruff can.
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

size: env  ## Count statements, public names, flags and files of each room; nothing is judged.
	@$(PY) tests/helpers/size.py

docs: env-dev  ## Build the documentation site into site/; warnings are errors.
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict $(ARGS)

audit: env-dev  ## Check the locked versions for vulnerabilities that docs/security.md does not decide on (network).
	$(PY) -m pip_audit --requirement requirements.lock --no-deps --strict --vulnerability-service osv \
	  --progress-spinner off $(addprefix --ignore-vuln=,$(shell sed -n 's/^|\([^|]*\)|.*/\1/p' docs/security.md \
	  | grep -oE '(CVE-[0-9]+|GHSA-[0-9a-z]{4}-[0-9a-z]{4}|PYSEC-[0-9]+)-[0-9a-z]+')) $(ARGS)

lock: env  ## Write the lock files anew (ARGS=--upgrade for newer versions).
	@sh scripts/env/lock.sh $(ARGS)

gpu-check: env-gpu  ## Hold a GPU's results, speed and memory against the CPU's.
	@$(PY) -m research.gpu_check $(ARGS)

vectors: env-dev  ## Make the vectors of vectors/ anew, compare, and hold both engines against all of them.
	@$(PY) -m research.vectors
	@$(PY) -m pytest -q -m '' tests/research/vectors_test.py

clean:  ## Remove caches and build output; 'rm -rf .venv' removes the environment too.
	rm -rf build dist site *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -path ./.venv -prune -o -name __pycache__ -type d -exec rm -rf {} +
