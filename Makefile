# make demo, make test: everything else they need, they set up by themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RLLIB := .venv-rllib
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint .ci/constraints.txt

.PHONY: help setup demo test test-integrations lint bench pictures clean

help:  ## What there is to make
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(VENV)/bin/python $(RLLIB)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "ors-gym needs Python 3.11 or later: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(@D)/..

# torch first, by its pin: the packages that need it would otherwise choose a build of their own.
$(VENV)/.torch: .ci/constraints.txt | $(VENV)/bin/python
	$(INSTALL) 'torch' && touch $@

$(VENV)/.demo: pyproject.toml $(VENV)/.torch
	$(INSTALL) --editable '.[demo]' && touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.torch
	$(INSTALL) --editable '.[all,dev]' && touch $@ $(VENV)/.demo

# RLlib wants Gymnasium 1.2.2, so it lives by itself.
$(RLLIB)/.dev: BIN := $(RLLIB)/bin
$(RLLIB)/.dev: pyproject.toml .ci/constraints.txt | $(RLLIB)/bin/python
	$(INSTALL) 'torch'
	$(INSTALL) --editable '.[rllib,sb3,images,notebook,plot,server,dev]' && touch $@

setup: $(VENV)/.dev  ## The virtual environment, with every extra
	@command -v chromium >/dev/null || echo "The viewer's tests drive Chromium and are skipped without it: apt-get install chromium"

demo: $(VENV)/.demo  ## A model learns by GRPO on a real ORS server: about a minute after the installs
	$(BIN)/ors-gym demo

test: $(VENV)/.dev  ## Every test but the trainers'
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not integration'

test-integrations: $(VENV)/.dev $(RLLIB)/.dev  ## The trainers, each learning; RLlib and the Gymnasium tests on its Gymnasium
	$(BIN)/python -m pytest -n 2 --dist loadfile -m integration
	$(RLLIB)/bin/python -m pytest -m integration tests/integrations/test_rllib.py
	$(RLLIB)/bin/python -m pytest -n 2 --dist loadfile -m 'not integration' tests/env tests/spaces tests/wrappers

lint: $(VENV)/.dev  ## ruff, mypy --strict, the layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict ors_gym
	$(BIN)/lint-imports

bench: $(VENV)/.dev  ## What it costs, beside its peers
	$(BIN)/python -m tests.benchmarks

pictures: $(VENV)/.dev  ## The README's pictures of the viewer; takes Chromium
	$(BIN)/python -m tests.pictures

clean:  ## Remove what was built
	rm -rf $(VENV) $(RLLIB) build dist .mypy_cache .ruff_cache .pytest_cache
