# Thin lines over hatch (see hatch.toml), which is itself installed into .hatch on first use.

PYTHON ?= python3
HATCH_VERSION := 1.18.2
HATCH := $(CURDIR)/.hatch/bin/hatch

# hatch makes its environments with the Python it runs on, and keeps all its own in .hatch.
export HATCH_PYTHON := self
export HATCH_DATA_DIR := $(CURDIR)/.hatch/data
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Each of these files marks something as installed, so that a second time costs nothing.
hatch := .hatch/hatch-$(HATCH_VERSION)
environment := .venv/ready$(addprefix -,$(VLLM_RASTER_ENGINE))

.DEFAULT_GOAL := help
.PHONY: help setup demo test unit e2e fuzz leaks lint format bench checkpoint reference build clean

help: ## explain the targets
	@echo "make TARGET, where TARGET is one of"
	@sed -nE 's/^([a-z0-9]+):.*## (.*)/  \1 \t\2/p' Makefile | expand -t 14
	@echo
	@echo "VLLM_RASTER_ENGINE=vllm make setup  installs vLLM for a GPU instead of its CPU build."
	@echo "ARGS passes arguments on to pytest and to scripts: make unit ARGS='-k tiling'"

$(hatch):
	$(PYTHON) -m venv --clear .hatch
	.hatch/bin/pip install --quiet hatch==$(HATCH_VERSION)
	@touch $@

$(environment): $(hatch) hatch.toml VERSION tools/install_engine.py packages/model/pyproject.toml packages/io_plugin/pyproject.toml
	$(HATCH) run setup
	@rm -f .venv/ready*
	@touch $@

setup: $(environment) ## install vLLM and both packages into .venv (minutes, once)

demo: setup ## start a server, send it a raster, show what comes back
	$(HATCH) run python examples/demo.py $(ARGS)

test: setup ## all tests
	$(HATCH) run test $(ARGS)

unit: setup ## the tests that need no running vLLM
	$(HATCH) run unit $(ARGS)

e2e: build ## the end-to-end tests, on the built wheels in an environment of their own
	.hatch/bin/python tools/e2e.py $(ARGS)

fuzz: setup ## spoiled files and requests by the ten thousand (a quarter of an hour)
	$(HATCH) run fuzz $(ARGS)

leaks: setup ## whether a server gives everything back, a thousand times (minutes)
	$(HATCH) run leaks $(ARGS)

lint: $(hatch) ## check style and types
	$(HATCH) run lint:check

format: $(hatch) ## format the code, mend what ruff can mend
	$(HATCH) run lint:format

bench: setup ## run the benchmarks
	$(HATCH) run python benchmarks/run_all.py $(ARGS)

checkpoint: setup ## train the tests' checkpoints anew
	$(HATCH) run python tests/checkpoints/train_land_cover.py $(ARGS)
	$(HATCH) run python tests/checkpoints/train_instructed.py $(ARGS)

reference: setup ## write the request's and the answer's schemas and docs/reference.md anew
	$(HATCH) run python tools/write_reference.py

build: $(hatch) ## both packages' wheels and source archives, into dist
	rm -rf dist
	cd packages/model && $(HATCH) build ../../dist
	cd packages/io_plugin && $(HATCH) build ../../dist

clean: ## remove all that make has made
	rm -rf .hatch .venv .venv-lint .venv-e2e dist .mypy_cache .pytest_cache .ruff_cache
