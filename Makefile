# Commands for development and CI. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
REPLAY_VENV := .venv-replay
REPLAY_STAMP := $(REPLAY_VENV)/.setup-stamp
PORT ?= 8501
# Each test file in one process; tests/conftest.py says how many processes, and orders the files.
PYTEST_ARGS ?= -n logical --dist loadfile --no-loadscope-reorder
# Packages are compiled when they are first imported; most of their modules never are.
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile -c .ci/constraints.txt
# Some images set it, and each process would compile all again.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup setup-replay run test collected check style types pages rules format golden docs pictures bench bench-dashboard bench-team bench-uploads bench-growth bench-simulation bench-joins bench-large-ranks fuzz clean replays

help: ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## create .venv with the pinned versions

$(STAMP): pyproject.toml .ci/constraints.txt
	@echo "Setting up $(VENV): 1 to 3 minutes, only the first time and after updates."
	$(PYTHON) -m venv $(VENV)
	@echo "1 of 2: downloading and installing packages (about a minute)"
	$(BIN)/python $(PIP_INSTALL) -e '.[dev]'
	@echo "2 of 2: compiling (about 20 seconds)"
	$(BIN)/python -m compileall -q jarvis
	$(BIN)/python -c 'import app, jarvis.cli, jarvis.simulation.replay, jarvis.trace.compiled' # compile the kernels, once per machine
	@touch $@

setup-replay: $(REPLAY_STAMP) ## create .venv-replay with torch, for tests of replay packages

$(REPLAY_STAMP): .ci/constraints.txt
	$(PYTHON) -m venv $(REPLAY_VENV)
	$(REPLAY_VENV)/bin/python $(PIP_INSTALL) torch
	@touch $@

run: setup ## analyze the sample trace and serve the dashboard (PORT=8501)
	@echo "Analyzing the sample trace (some seconds), then serving http://localhost:$(PORT)"
	$(BIN)/jarvis serve --with-sample --port $(PORT)

check: style types pages rules ## lint, format, types, layers, generated docs, tests of names and words

style: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

types: setup
	$(BIN)/mypy

pages: setup
	$(BIN)/python docs/generate.py --check

rules: setup
	$(BIN)/python -m pytest -q tests/test_architecture.py tests/test_columns.py tests/test_language.py

# One thread of Polars and NumPy in each process: the processes already take all cores.
test: style types pages $(TEST_NEEDS) ## lint, types, docs, then the whole test suite (browser tests need Debian's chromium)
	MAKEFLAGS= POLARS_MAX_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest $(PYTEST_ARGS)

# Compile the tests once; each process of a first run would do it.
collected: setup
	$(BIN)/python -m pytest --collect-only -qq >/dev/null

format: setup ## format, and fix lint errors that can be fixed automatically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: setup ## update the golden runs; review the diff
	$(BIN)/python -m pytest tests/test_golden.py --update-golden

docs: setup ## write the generated pages in docs/
	$(BIN)/python docs/generate.py

pictures: setup ## take the screenshots of the README and of every page (TRACES=...; needs chromium)
	PYTHONPATH=. $(BIN)/python docs/newcomer.py
	PYTHONPATH=. $(BIN)/python docs/contact_sheet.py $(TRACES)

replays: setup setup-replay ## replay all operators of the traces in TRACES=folder on the CPU; write docs/replay.md
	$(BIN)/python benchmarks/replay.py $(TRACES) --python $(REPLAY_VENV)/bin/python --page docs/replay.md

bench: setup ## measure time and memory relative to loading the JSON
	$(BIN)/python benchmarks/pipeline.py --page benchmarks/README.md

bench-dashboard: setup ## measure dashboard latency in a browser and with many sessions
	$(BIN)/python -m benchmarks.dashboard --page benchmarks/README.md

bench-team: setup ## measure concurrent users, jobs and uploads, also during failures
	$(BIN)/python -m benchmarks.team --page benchmarks/README.md

bench-uploads: setup ## measure the upload of 1 GB by a browser and by jarvis push
	$(BIN)/python -m benchmarks.uploads --page benchmarks/README.md

bench-growth: setup ## measure how the costs of an analysis grow with each kind of input
	$(BIN)/python -m benchmarks.growth --page benchmarks/README.md

bench-simulation: setup ## measure building and replaying of step simulations
	$(BIN)/python -m benchmarks.simulation --page benchmarks/README.md

bench-joins: setup ## measure time and memory of the join of up to 1,024 ranks
	$(BIN)/python -m benchmarks.joins --page benchmarks/README.md

bench-large-ranks: setup ## measure the analysis of 64 traces of 100 MB, locally and on Dask
	$(BIN)/python -m benchmarks.large_ranks --page benchmarks/README.md

fuzz: setup ## fuzz every kind of input, with array bounds checked (at most 40 minutes on 2 cores)
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz

clean: ## remove the environment and caches
	rm -rf $(VENV) $(REPLAY_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
