# Everything a fresh machine needs is installed into .venv by the first target that needs it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
READY := $(VENV)/.ready
CODE := src tests benchmarks examples docs/make

.PHONY: demo test test-slow check format format-check lint types bench docs docs-sources clean setup

demo: setup  ## set up, then train on real digits with 40 % wrong labels and compare with three controls
	$(BIN)/mslg demo -o runs/demo --force

test: setup  ## set up, then run the fast tests
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: setup  ## kill tests, the demo, the docs, the wheel; the outcome is written to tests/slow_result.txt
	$(BIN)/pip install -q -c constraints.txt -e '.[docs,notebook]'
	$(BIN)/python -m pytest -m slow --record-result tests/slow_result.txt

check: format-check lint types test  ## what a commit must pass, and all that CI runs; changes no file

format: setup  ## format the code and apply the safe fixes of the linter
	$(BIN)/ruff check --fix-only --quiet $(CODE)
	$(BIN)/ruff format $(CODE)

format-check: setup
	$(BIN)/ruff format --check $(CODE)

lint: setup
	$(BIN)/ruff check $(CODE)

types: setup
	$(BIN)/mypy

bench: setup  ## the cost of a step, as a multiple of a plain one
	$(BIN)/python benchmarks/step_cost.py --json

docs-sources: setup  ## generate what the docs take from the code: reference pages, navigation, tables of methods
	$(BIN)/python docs/make/reference.py

docs: setup  ## build the site into site/; its reference pages and figures are generated from the code first
	$(BIN)/pip install -q -c constraints.txt -e '.[docs]'
	$(MAKE) docs-sources
	$(BIN)/python docs/make/one_step.py
	$(BIN)/python docs/make/architecture.py
	PYTHONPATH=docs/make $(BIN)/zensical build --clean --strict

setup: $(READY)

# torch is installed first, everything else under the same constraints, so that pip never replaces its build.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("mslg needs Python 3.11 or newer; choose one with make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q -c constraints.txt torch
	$(BIN)/pip install -q -c constraints.txt -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs site .pytest_cache .mypy_cache .ruff_cache
