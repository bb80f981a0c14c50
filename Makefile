# Everything a fresh machine needs is installed into .venv by the first command that wants it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test test-slow check format lint types bench docs docs-sources clean setup

demo: setup  ## set up, then train on real digits with 40 % wrong labels and show what changed
	$(BIN)/mslg demo -o runs/demo --force

test: setup  ## set up, then the fast tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: setup  ## the kill tests, the demo, the docs, the wheel; the result is kept in tests/slow_result.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[docs,notebook]'
	$(BIN)/python -m pytest -m slow --record-result tests/slow_result.txt

check: format lint types test  ## what a commit must pass

format: setup
	$(BIN)/ruff format src tests benchmarks examples docs/make

lint: setup
	$(BIN)/ruff check src tests benchmarks examples docs/make

types: setup
	$(BIN)/mypy

bench: setup  ## the cost of one step, as multiples of a plain one
	$(BIN)/python benchmarks/step_cost.py --json

docs-sources: setup  ## what the docs take from the code: reference pages, navigation, tables of methods
	$(BIN)/python docs/make/reference.py

docs: setup  ## the site, into site/; its reference pages and its figure are made from the code first
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	$(MAKE) docs-sources
	$(BIN)/python docs/make/one_step.py
	PYTHONPATH=docs/make $(BIN)/zensical build --clean --strict

setup: $(READY)

# torch goes first and pinned, everything else under the same constraints, so that pip never swaps the build.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("mslg needs Python 3.11 or newer; name one with make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache
