# Everything runs in .venv, which `make install` builds from pyproject.toml and constraints.txt.
# Every target that needs the environment asks for it: nothing has to be run first.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,arviz,petab,study,explore,docs

# The newest Python that is old enough for the pins and can make a venv.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# Two workers: compiling is what takes the time, and it uses more than one core by itself.
# A file stays on one worker, so that its tests share what has been compiled. -rs: say what is
# skipped, and why.
PYTEST = $(BIN)/pytest -n 2 --dist loadfile -rs

.DEFAULT_GOAL := help
.PHONY: help install demo test run-tests test-oldest test-newest coverage test-all lint format docs bench \
	constraints clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## build .venv; done again only when the dependencies change

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { \
		echo "Python 3.11 or newer with its venv module is wanted, and none was found;" \
			"name one with: make install PYTHON=/path/to/python3" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --quiet \
		-c constraints.txt -e '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP) ## Lotka-Volterra, three methods: figures and a report in demo/
	$(BIN)/pcuq demo --out demo

test: lint run-tests ## lint, then all tests but the slow ones

# Unit tests compile much and compute little: without optimisation they end sooner.
define RUN_TESTS
XLA_FLAGS=--xla_backend_optimization_level=0 $(PYTEST) -m "not slow" tests/unit
$(PYTEST) -m "not slow" tests/statistical tests/external
endef

run-tests: $(STAMP)
	$(RUN_TESTS)

test-oldest: RESOLUTION := lowest-direct
test-oldest: ## the tests on the lowest versions that pyproject.toml allows
test-newest: RESOLUTION := highest
test-newest: ## the tests on the newest versions that there are
# An environment of their own, which must not be brought to what constraints.txt says.
test-oldest test-newest: BIN = .cache/$@/bin
test-oldest test-newest:
	rm -rf .cache/$@ && $(PYTHON) -m venv .cache/$@
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python --resolution $(RESOLUTION) -e '.[$(EXTRAS)]'
	$(BIN)/uv pip list --python $(BIN)/python
	$(RUN_TESTS)

coverage: $(STAMP) ## lines and branches of src that the tests of `make test` reach
	rm -f .coverage .coverage.*
	XLA_FLAGS=--xla_backend_optimization_level=0 $(PYTEST) --cov --cov-report= -m "not slow" tests/unit
	$(PYTEST) --cov --cov-append --cov-report= -m "not slow" tests/statistical tests/external
	# pytest has combined what there was; a process that ended after it may have left more.
	set -- .coverage.*; test ! -e "$$1" || $(BIN)/coverage combine --quiet --append
	$(BIN)/coverage report

test-all: lint ## lint, then all tests
	$(PYTEST)

lint: $(STAMP) ## ruff, pyright, and which module may import which
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP) ## put the code into its usual form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## the documentation as a site, in site/
	$(BIN)/mkdocs build --quiet

# REFERENCE: a checkout of the authors' code, to be timed beside.
bench: $(STAMP) ## compile and run times and quality per second, as a table in docs/benchmarks.md
	mkdir -p .cache/bench
	$(BIN)/pcuq bench --json $(if $(REFERENCE),--reference $(REFERENCE)) > .cache/bench/bench.json
	for name in scaling samplers ode_in_c large_n; do \
		$(BIN)/python benchmarks/$$name.py > .cache/bench/$$name.json || exit 1; done
	$(BIN)/python benchmarks/table.py .cache/bench && mv .cache/bench/benchmarks.md docs/

# Resolved from nothing, on the oldest Python that is supported: what it can have, newer ones can.
constraints: ## pin the newest versions of all dependencies (PYTHON=python3.11)
	rm -rf .cache/constraints && $(PYTHON) -m venv .cache/constraints
	.cache/constraints/bin/python -m pip install --quiet -e '.[$(EXTRAS)]'
	{ grep '^#' constraints.txt; \
		.cache/constraints/bin/python -m pip freeze --exclude-editable; } > .cache/constraints.txt
	mv .cache/constraints.txt constraints.txt && rm -rf .cache/constraints

clean: ## remove the environment and all that was made
	rm -rf $(VENV) .cache .hypothesis .pytest_cache .ruff_cache .import_linter_cache build dist demo site
	find src tests -name __pycache__ -prune -exec rm -rf {} +
