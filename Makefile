# `make train` and `make test` work in a fresh clone with Python 3.11 or later, pip and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A stamp is newer than pyproject.toml while what it stands for is installed.
PACKAGE := $(VENV)/.installed-package
TOOLS := $(VENV)/.installed-tools
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: help train test test-long docs clean

help:
	@echo "make train      learn a small maze on a CPU, and write a report about it"
	@echo "make test       format, lint, types, tests"
	@echo "make test-long  what takes too long for that: a cluster that fails again and again, memory over ten minutes"
	@echo "make docs       build the documentation into site/"
	@echo "make clean      remove everything that was made, except runs/"

train: $(PACKAGE)
	$(BIN)/ngu train disco-maze-small

test: $(TOOLS)
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile

test-long: $(TOOLS)
	$(BIN)/pytest -m long -s

docs: $(TOOLS)
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) site build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than 3.11; name another with: make PYTHON=python3.11"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(PACKAGE): pyproject.toml | $(BIN)/python
	@echo "installing ngu and what it needs into $(VENV); PyTorch takes a minute or two"
	@$(PIP) install --quiet --editable .
	@touch $@

$(TOOLS): pyproject.toml | $(BIN)/python
	@echo "installing ngu, its tools for tests and its documentation into $(VENV); PyTorch takes a minute or two"
	@$(PIP) install --quiet --editable '.[dev,docs]'
	@touch $@ $(PACKAGE)
