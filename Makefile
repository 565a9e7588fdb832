# make demo: from raw cubes to a trained network, in one command.   make test: everything a change needs, in minutes.
# make test-long: matrices and soaks, besides.   make gpu: proves on a GPU what is said of GPUs.
# make docs: the site.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# A module is compiled when it is first imported: to compile all of every package takes longer than to install it.
INSTALL := -m pip install --quiet --no-compile --constraint constraints.txt
export PYTHONDONTWRITEBYTECODE :=
# Files of few tests are as long as others: in the order of their names, short ones come last. There are more workers
# than cores: further threads of torch would wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile --no-loadscope-reorder

.PHONY: demo test test-long test-oldest test-cluster unit lint wheel docs gpu clean

$(VENV)/installed: pyproject.toml constraints.txt setup.py $(wildcard voxload/core/*.[ch] voxload/core/*/*.[ch])
	$(PYTHON) -m venv --upgrade-deps $(VENV)
	$(BIN)/python $(INSTALL) --editable ".[dev]"
	touch $@

demo: $(VENV)/installed
	$(BIN)/voxload demo

# Together: linting and the wheel use one core each, and the tests of several processes wait in between.
test: $(VENV)/installed
	$(MAKE) --no-print-directory --jobs=3 lint unit wheel

# Matrices and soaks, and all examples of the property tests, of which `make test` draws a quarter.
test-long: $(VENV)/docs
	$(PYTEST) -m long
	VOXLOAD_TEST_THOROUGH=1 $(PYTEST)

# The site, into site/: a dead link, a page that nothing leads to or an undocumented public name ends it.
$(VENV)/docs: $(VENV)/installed
	$(BIN)/python $(INSTALL) --editable ".[docs]"
	touch $@

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# The oldest versions that pyproject.toml allows, in an environment of their own: of torch it is the one with CUDA, 3 GB.
test-oldest: $(VENV)/installed
	PYTHON=$(abspath $(BIN))/python ./.ci/oldest

# A Slurm of one node, and real users: for root of a machine that may be changed.
test-cluster: $(VENV)/installed
	./.ci/cluster $(BIN)/python

lint: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache .importlinter

# What all processes of tests import is compiled by one of them, where each compiled it for itself.
$(VENV)/imported: $(VENV)/installed
	$(BIN)/python -m pytest --collect-only --quiet --quiet >$@ 2>&1 || { cat $@; rm $@; false; }

unit: $(VENV)/imported
	$(PYTEST)

# The wheel must work where there are no sources: built from the sdist, installed alone, run from an empty folder through
# what README and docs/demo.md show first.
wheel: $(VENV)/installed
	PYTHON=$(abspath $(BIN))/python ./.ci/wheel

# GPU_PYTHON=python3 takes a Python that has torch for the GPU at hand: voxload need not be installed there.
ifdef GPU_PYTHON
gpu:
	$(GPU_PYTHON) -m bench.gpu
else
gpu: $(VENV)/installed
	$(BIN)/python -m bench.gpu
endif

clean:
	rm -rf $(VENV) .venv-oldest build dist site *.egg-info demo-data demo-report gpu-report
