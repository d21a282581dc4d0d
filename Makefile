# Every target sets up what it needs: a virtual environment in .venv, with the tested versions.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
WORKERS ?= 2

export FLWR_TELEMETRY_ENABLED := 0
export FLWR_DISABLE_UPDATE_CHECK := 1
export RAY_USAGE_STATS_ENABLED := 0

.PHONY: help install demo test lint format check stress flower-next bench clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

install: $(STAMP) ## the virtual environment, with every extra

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(STAMP) ## compare the main strategies on the pupils of 131 education authorities
	$(BIN)/fedpriv compare simulations/experiments/chem97.toml

test: lint check ## all that continuous integration runs: lint, types, tests, doctests, README

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the code in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(STAMP) ## the test suite alone
	$(BIN)/python -m pytest -n $(WORKERS)

stress: $(STAMP) ## the deep form of the tests that have one: every way to make a release, and more; an hour
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q -n $(WORKERS) --dist=worksteal tests/audit
	FEDPRIV_LEDGER_KILLS=5000 $(BIN)/python -m pytest -q tests/privacy/ledger/test_ledger_kill.py
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q tests/privacy/accountants/test_sampled_loss.py tests/test_wheel.py
	FEDPRIV_STRESS=1 $(BIN)/python -m pytest -q tests/simulations/deploy/test_real_network.py tests/simulations/deploy/test_real_delivery.py

flower-next: $(STAMP) ## the deployment tests against the newest Flower
	$(BIN)/python -m tests.newest_flower

bench: $(STAMP) ## benchmarks against peers, which live in a virtual environment of their own
	$(BIN)/python -m benchmarks

clean: ## remove what these targets made
	rm -rf $(VENV) .venv-bench* .venv-flower .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
