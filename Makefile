# Each target creates the environment that it needs; nothing else has to be installed first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test check docs fuzz ir bench figures dist versions clean

$(VENV)/.user: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), a minute or two ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all]'
	touch $@

$(VENV)/.dev: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV), a minute or two ..."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $(VENV)/.user $@

demo: $(VENV)/.user  ## the paper's experiments, small, in one page: demo/report.html
	$(BIN)/driftls reproduce --quick --out demo

test: $(VENV)/.dev  ## every test, docstring, README and tutorial
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: $(VENV)/.dev  ## style, types, import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/.dev  ## the documentation site, in site/: open site/index.html, no server is needed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --site-dir site

ir: $(VENV)/.dev  ## the kernels' LLVM IR that is shipped, so that a first result does not wait for the compiler; after an edit of a kernel
	$(BIN)/python -c 'from driftls.cli.studies import every_part as parts; from driftls.compiling.objects import ship; ship(parts())'

bench: $(VENV)/.dev  ## a round of ours, of exact methods and of other libraries, small; what else is measured: python -m benchmarks
	$(BIN)/python -m benchmarks peers --quick

MINUTES ?= 10

fuzz: $(VENV)/.dev  ## random calls, good and bad: crashes, raw errors, states that a refused call changed
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)

figures: $(VENV)/.dev  ## name the tables of the docs whose sources have changed since they were taken, and measure them
	-$(BIN)/python -m benchmarks --stale
	$(BIN)/python -m benchmarks --write

$(VENV)/.dist: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dist]'
	touch $@

# an environment of its own, so that the wheel is what runs
TRIAL   := $(VENV)/trial
DECIDE  := import numpy as np, driftls; p = driftls.LinUCB(3); p.learn(np.eye(3), 1.0, arm=p.choose(np.eye(3))); print(p)
VERSION := import driftls; print(driftls.__version__)

dist: $(VENV)/.dist  ## wheel and sdist in dist/, checked and tried in an empty environment; refused while a table is stale
	$(BIN)/python -m benchmarks --stale
	rm -rf dist $(TRIAL)
	$(BIN)/python -m build --outdir dist
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv $(TRIAL)
	$(TRIAL)/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	$(TRIAL)/bin/python -c '$(DECIDE)'
	$(TRIAL)/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo dist/*.whl)[cli]"
	$(TRIAL)/bin/driftls --version | grep -F "$$($(BIN)/python -c '$(VERSION)')"
	rm -rf $(TRIAL)
	ls -l dist

PYTHONS ?= python3.11 python3.12 python3.13

versions:  ## what every tracker and policy must do, with other versions of Python: PYTHONS="python3.12 python3.13"
	for python in $(PYTHONS); do \
	  rm -rf $(TRIAL) && $$python -m venv $(TRIAL) || exit 1; \
	  $(TRIAL)/bin/python -m pip install --quiet --disable-pip-version-check . || exit 1; \
	  $(TRIAL)/bin/python tests/versions.py || exit 1; \
	done; rm -rf $(TRIAL)

clean:
	rm -rf $(VENV) demo site dist
