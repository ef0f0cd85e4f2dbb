# Every target sets up what it needs in .venv; nothing outside this folder is changed.

PYTHON ?= python3
PYTEST_ARGS ?= -q -n 3

VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
RUN := $(BIN)/python -m
PIP := $(RUN) pip --disable-pip-version-check install --quiet --constraint constraints.txt
FETCHED := src/eqkin/formulas/katex.json src/eqkin/web/static/vendor/stix-two-math.json src/eqkin/web/static/vendor/mathlive.json

# Set-up is repeated when one of these changes, or when the files that building eqkin makes are gone.
RECIPE := pyproject.toml constraints.txt hatch_build.py $(if $(filter-out $(wildcard $(FETCHED)),$(FETCHED)),again)

# The tests start hundreds of processes, which start faster from compiled modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test pytest bench golden torture reproduce report docs browser lint types format sbom audit wheel clean again
.DELETE_ON_ERROR:

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.base ## build a library from the bundled atlas, search it, serve it (NO_SERVE=1: do not serve)
	$(BIN)/eqkin demo --library local/atlas

test: $(VENV)/.dev browser ## lint, and run all tests
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest:
	$(RUN) pytest $(PYTEST_ARGS)

bench: $(VENV)/.dev ## measure speed, scale or load: make bench ARGS="search --library DIR"
	$(RUN) benchmarks $(ARGS)

golden: $(VENV)/.dev ## record answers, or compare two recordings: make golden ARGS="compare before after"
	$(RUN) benchmarks golden $(ARGS)

torture: $(VENV)/.dev ## kill, cut the power, damage files, feed nonsense: make torture SECONDS=3600
	$(RUN) benchmarks torture --seconds $(or $(SECONDS),3600) $(ARGS)

reproduce: $(VENV)/.dev ## repeat the paper's experiments: make reproduce LIBRARY=DIR (SMALL=1: in some minutes, on the atlas)
	$(if $(SMALL),NO_SERVE=1 $(BIN)/eqkin demo --library local/atlas)
	$(RUN) research all $(if $(SMALL),--small --library local/atlas --out local/reproduce,$(if $(LIBRARY),--library $(LIBRARY))) $(ARGS)

report: $(VENV)/.dev ## write the tables of research/results into research/RESULTS.md and the other pages that show them
	$(RUN) research report

docs: $(VENV)/.dev ## build the documentation site in local/site; it needs no network
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet --strict
	@echo "the site is local/site/index.html; to search in it: $(RUN) http.server -d local/site"

# Tests in a browser are skipped where there is none. Continuous integration, as root on a Debian, gets one.
browser:
	@if [ "$(CI)" = true ] && ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } >/dev/null; fi

lint: $(VENV)/.dev ## check style, types and imports between packages, and print the size of each
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/python tools/sizes.py

# Everything that users import must have a known type for pyright, too; it runs in Node.js, and fetches it if there is none.
types: $(VENV)/.dev ## check with pyright that the public modules are fully typed
	@for module in eqkin.api eqkin.errors eqkin.search.results eqkin.encoder.encoder eqkin.evaluation.experiment; do \
	  PATH="$(abspath $(BIN)):$$PATH" $(RUN) pyright --verifytypes $$module --ignoreexternal || exit 1; done

format: $(VENV)/.dev ## put the code into the common format
	$(RUN) ruff check --fix .
	$(RUN) ruff format .

sbom: $(BIN)/python ## write a software bill of materials, build/sbom.json
	@mkdir -p build
	$(BIN)/python deploy/sbom.py > build/sbom.json

audit: $(BIN)/python ## compare the pinned versions with known vulnerabilities (needs a network)
	$(PIP) pip-audit
	$(RUN) pip_audit --requirement constraints.txt --no-deps --disable-pip --progress-spinner off

# The commands in the new environment find neither npm nor compilers, and no source of a package is built.
wheel: $(VENV)/.base ## build the wheel, install it into a clean environment, build and search a library there
	$(PIP) hatchling
	rm -rf build/wheel && mkdir -p build/wheel/elsewhere
	$(RUN) hatchling build --target wheel --directory build/wheel
	$(PYTHON) -m venv build/wheel/$(VENV)
	cd build/wheel/elsewhere && export PATH="$(CURDIR)/build/wheel/$(BIN)" && \
	  python -m pip --disable-pip-version-check install --quiet --only-binary :all: \
	    --constraint ../../../constraints.txt ../eqkin-*-py3-none-any.whl && \
	  NO_SERVE=1 eqkin demo --library library && eqkin verify --library library

clean: ## remove everything the other targets made
	rm -rf $(VENV) build dist .pytest_cache .hypothesis .ruff_cache .mypy_cache .coverage src/eqkin/formulas/katex.* src/eqkin/web/static/vendor local/npm
	find benchmarks research src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "eqkin needs Python 3.11 or newer and '$(PYTHON)' is not: name another one, as in: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "'$(PYTHON)' cannot make virtual environments: install its venv module (Debian: python3-venv)" >&2; exit 1; }

$(VENV)/.base: $(RECIPE) | $(BIN)/python
	$(PIP) --editable .
	@touch $@

# torch by its exact version first: then pip takes a build for CPUs where the index has one (PyPI's for Linux is for GPUs)
$(VENV)/.dev: $(RECIPE) | $(BIN)/python
	$(PIP) '$(shell grep '^torch==' constraints.txt)'
	$(PIP) --editable '.[bench,dev,test,docs,documents,eval,mcp,milvus,ray,train]'
	$(BIN)/python hatch_build.py
	@touch $(VENV)/.base $@
