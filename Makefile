# Everything a developer or a CI machine does with this project. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-stamp
REPLAY_VENV := .venv-replay
REPLAY_STAMP := $(REPLAY_VENV)/.setup-stamp
PORT ?= 8501
# A process for each core, a file of tests always in one of them; tests/conftest.py orders the files.
PYTEST_ARGS ?= -n logical --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup setup-replay run test check format golden docs pictures bench bench-dashboard bench-team bench-uploads bench-growth fuzz clean replays

help: ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP) ## make .venv with the pinned versions

$(STAMP): pyproject.toml .ci/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q jarvis
	$(BIN)/python -c 'import jarvis.trace.compiled' # compiles the kernels of the reader, once per machine
	@touch $@

setup-replay: $(REPLAY_STAMP) ## make .venv-replay with torch, in which tests run replay packages

$(REPLAY_STAMP): .ci/constraints.txt
	$(PYTHON) -m venv $(REPLAY_VENV)
	$(REPLAY_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt torch
	@touch $@

run: setup ## analyze the sample trace and serve the dashboard (PORT=8501)
	$(BIN)/jarvis serve --with-sample --port $(PORT)

check: setup ## lint, format, types, layers, generated docs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

test: check ## check, then the whole test suite (browser tests need Debian's chromium)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

format: setup ## format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

golden: setup ## re-make the golden runs; review the diff
	$(BIN)/python -m pytest tests/test_golden.py --update-golden

docs: setup ## write the generated pages in docs/
	$(BIN)/python docs/generate.py

pictures: setup ## take the pictures of the README and of every page (TRACES=...; needs chromium)
	PYTHONPATH=. $(BIN)/python docs/newcomer.py
	PYTHONPATH=. $(BIN)/python docs/contact_sheet.py $(TRACES)

replays: setup setup-replay ## replay all that TRACES=folder holds on the CPU, and write docs/replay.md
	$(BIN)/python benchmarks/replay.py $(TRACES) --python $(REPLAY_VENV)/bin/python --page docs/replay.md

bench: setup ## measure time and memory, as ratios
	$(BIN)/python benchmarks/pipeline.py --page benchmarks/README.md

bench-dashboard: setup ## measure the dashboard through a browser and many sessions
	$(BIN)/python -m benchmarks.dashboard --page benchmarks/README.md

bench-team: setup ## measure a team at work: jobs while many browse, uploads, things that break
	$(BIN)/python -m benchmarks.team --page benchmarks/README.md

bench-uploads: setup ## measure a trace of 1 GB that comes in by a browser and by jarvis push
	$(BIN)/python -m benchmarks.uploads --page benchmarks/README.md

bench-growth: setup ## measure how an analysis grows with each kind of input
	$(BIN)/python -m benchmarks.growth --page benchmarks/README.md

fuzz: setup ## give broken input of every kind, every index checked (at most 40 minutes on 2 cores)
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m tests.fuzz

clean: ## remove the environment and caches
	rm -rf $(VENV) $(REPLAY_VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
