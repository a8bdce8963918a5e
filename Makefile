# make = make check = CI. Everything is installed into .venv by the targets that need it.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.PHONY: check setup run test test-gpu soak format lint types bench clean

check: lint types test

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@

run: $(STAMP)
	$(VENV)/bin/partrain run jobs/mnist.toml

test: $(STAMP)
	$(PY) -m pytest -m 'not gpu and not soak' -n 2 --dist loadfile

test-gpu: $(STAMP)
	$(PY) -m pytest -m gpu

# What is too long for the gate: every network under every synchronous rule.
soak: $(STAMP)
	$(PY) -m pytest -m soak

format: $(STAMP)
	$(PY) -m ruff format partrain tests benchmarks
	$(PY) -m ruff check --fix partrain tests benchmarks

lint: $(STAMP)
	$(PY) -m ruff format --check partrain tests benchmarks
	$(PY) -m ruff check partrain tests benchmarks

types: $(STAMP)
	$(PY) -m mypy

# Measurements and long runs: not part of the gate; results are recorded in benchmarks/.
bench: $(STAMP)
	$(PY) benchmarks/ceiling.py
	$(PY) benchmarks/throughput.py
	$(PY) benchmarks/time_to_accuracy.py
	$(PY) benchmarks/startup.py
	$(PY) benchmarks/defaults.py
	$(PY) benchmarks/rules.py real
	$(PY) benchmarks/rules.py simulated
	$(PY) benchmarks/rules.py straggler

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
