# `make` lists the commands. `make run` and `make test` prepare everything they need themselves.

SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help run test lint types docs unit browser bench shots fix clean

VENV := .venv
BIN := $(VENV)/bin
PORT ?=
# Two workers: one for the tests that drive a browser, the rest for the others.
JOBS ?= 2
PYTEST := $(BIN)/python -m pytest --color=no
IN_PARALLEL := -p no:benchmark --numprocesses $(JOBS) --dist loadgroup

help: ## list these commands
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

run: $(VENV)/.app-ready ## start the app; PORT=8600 to choose the port
	$(BIN)/python -m streamlit run app.py --server.headless true --browser.gatherUsageStats false \
		$(if $(PORT),--server.port $(PORT))

test: lint types chromium ## everything CI checks: lint, types, docs, all tests
	$(PYTEST) $(IN_PARALLEL)

lint: $(VENV)/.dev-ready ## ruff: rules and format
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

types: $(VENV)/.dev-ready ## mypy, strict
	$(BIN)/python -m mypy

docs: $(VENV)/.dev-ready ## whether the documents still say what the code does
	$(PYTEST) -p no:benchmark tests/test_docs.py

unit: $(VENV)/.dev-ready ## all tests that need no browser
	$(PYTEST) $(IN_PARALLEL) -m "not browser"

browser: $(VENV)/.dev-ready chromium ## the tests that drive the page in Chromium
	$(PYTEST) -p no:benchmark -m browser tests/browser

bench: $(VENV)/.dev-ready ## how long the core takes, as ratios to a fixed loop
	@mkdir -p test-output
	$(PYTEST) benchmarks -o python_files='bench_*.py' --benchmark-only --benchmark-json=test-output/bench.json
	$(BIN)/python benchmarks/ratios.py test-output/bench.json

shots: $(VENV)/.dev-ready chromium ## take the pictures in docs/shots again
	$(BIN)/python -m scripts.shots

fix: $(VENV)/.dev-ready ## format, repair what ruff can, refresh the tables in the documents
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .
	$(BIN)/python -m scripts.docs

clean: ## remove the virtual environment and everything the tools left behind
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks test-output

.PHONY: chromium
chromium:
	@scripts/chromium.sh

$(VENV)/.app-ready: requirements.txt
	@scripts/venv.sh $(VENV) requirements.txt
	@touch $@

$(VENV)/.dev-ready: requirements.txt requirements-dev.txt
	@scripts/venv.sh $(VENV) requirements-dev.txt
	@touch $@ $(VENV)/.app-ready
