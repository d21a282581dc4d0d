# Every target sets up what it needs: a virtual environment in .venv, with the tested versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := $(VENV)/.demo
# On two cores: one of the three waits for real processes, most of the time.
WORKERS ?= 3

export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0
# Threads of PyTorch that wait would spin, and take the processors from other tests.
export OMP_WAIT_POLICY := PASSIVE
# Tests start hundreds of processes: where nothing may be kept, each would compile fedpriv anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo docs figure test lint format kernels check suite mutants stress flower-next bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

install: $(STAMP) ## the virtual environment, with every extra

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@ $(DEMO)

# What the demo needs, and no more: neither Ray nor the tools of the tests.
$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[demo]'
	touch $@

demo: $(DEMO) ## compare the main strategies on the pupils of 131 education authorities
	$(BIN)/fedpriv compare simulations/experiments/chem97.toml

docs: $(STAMP) ## the documentation as a site, in build/docs; a broken link is an error
	$(BIN)/sphinx-build -q -W --keep-going -c docs/site docs build/docs
	@echo "open build/docs/index.html"

figure: $(STAMP) ## the figure and the numbers of the README, from a comparison of its own
	rm -rf build/chem97
	$(BIN)/fedpriv compare chem97 --out build/chem97
	$(BIN)/python docs/site/figure.py build/chem97

test: ## all that continuous integration runs: lint, types, tests, doctests, documentation
	$(MAKE) --jobs=2 --output-sync=target lint kernels
	$(MAKE) suite

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Who kills processes at the right moment needs a machine that is not busy: these come last, alone.
KILLS := tests/simulations/deploy/test_real_kills.py

# Whose tests compile nearly all compiled loops: first, so that no other process has to.
COMPILES := tests/learning/training/test_summed.py

kernels: $(STAMP)
	$(BIN)/python -m pytest -q -n 0 $(COMPILES)

check: kernels suite ## the test suite alone

suite: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) --ignore=$(KILLS) --ignore=$(COMPILES)
	$(BIN)/python -m pytest $(KILLS)

mutants: $(STAMP) ## break the product on purpose, a line at a time: tests must notice; ten minutes
	$(BIN)/python -m tests.mutants

stress: $(STAMP) ## the deep form of the tests that have one: every way to make a release, and more; an hour
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist=worksteal tests/audit tests/simulations/audit tests/simulations/test_what_runs_where.py
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q -n $(WORKERS) -m deep
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist=worksteal tests/fuzz
	FEDPRIV_LEDGER_KILLS=5000 $(BIN)/python -m pytest -q tests/privacy/ledger/test_ledger_kill.py
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q tests/privacy/accountants/test_sampled_loss.py tests/test_wheel.py tests/simulations/engines/test_training_engines.py tests/simulations/engines/test_sharded_ray.py tests/simulations/experiment/test_own_docs.py
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q tests/simulations/deploy/test_real_network.py tests/simulations/deploy/test_real_delivery.py tests/simulations/deploy/test_ahead.py

flower-next: $(STAMP) ## the deployment tests against the newest Flower
	$(BIN)/python -m tests.newest_flower

bench: $(STAMP) ## benchmarks against peers, which live in a virtual environment of their own
	$(BIN)/python -m benchmarks

clean: ## remove what these targets made
	rm -rf $(VENV) .venv-bench* .venv-flower .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
