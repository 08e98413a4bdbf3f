# Barnabas from a fresh clone: `make run` serves on localhost:9092, `make test` proves it. Everything lives in .venv.
# Needs git, make and Python >= 3.11; Java 17 or 21 for the Spark and Java-client tests only.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m pip install --quiet
ROUNDS ?= 5
SEEDS ?= 1000
FIRST ?= 0
NODES ?= 1
ROW ?= lock-step
BEFORE ?= HEAD~1
AFTER ?= HEAD
SECONDS ?= 900
MINUTES ?= 10
CHAOS_ARGS ?=
SIMULATE_ARGS ?=
SEED ?=
FUZZER ?=
LANES ?= 4
PYTEST_ARGS ?=

SOURCES := $(shell find barnabas broker config pipeline protocol storage -name '*.py' -o -name 'server.properties') pyproject.toml
# The first Python >= 3.11 found, or nothing.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)

.PHONY: run install check test lint style bench bench-compare bench-versus profile crash chaos transactions attack fuzz compare simulate docs package package-spark clean

run: $(VENV)/.installed
	@exec $(BIN)/barnabas serve

install: $(VENV)/.installed

# Four lanes at a time, since most tests wait half of the time (tests/support/lanes.py). LANES=1 runs them one after another.
# PYTEST_ARGS="tests/wire -x" runs one pytest with these words instead.
test: $(VENV)/.installed $(VENV)/.test-dependencies
	@command -v java >/dev/null 2>&1 || echo "Java is missing: the Spark and Java-client tests will be skipped. To install it: sudo apt-get install -y openjdk-17-jdk-headless maven" >&2
	$(BIN)/python -m $(if $(PYTEST_ARGS),pytest $(PYTEST_ARGS),tests.support.lanes --workers $(LANES))

# The documentation as a site, in build/docs: without network, and a warning is an error.
docs: $(VENV)/.docs-dependencies
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees . build/docs
	@echo "build/docs/index.html"

# The wheel and the source archive in dist/, checked: their metadata, and the installed wheel (tests/packaging/package.py).
package: $(VENV)/.package-dependencies
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m tests.packaging.package

# The wheel with its extra on a Spark cluster of two workers that have nothing else, three minutes (tests/packaging/on_spark.py).
package-spark: $(VENV)/.installed $(VENV)/.test-dependencies
	@PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m tests.packaging.on_spark

# For the hand at work, within a minute: what needs no other process and takes little time (tests/support/in_process.py).
check: style
	$(BIN)/python -m tests.support.check

lint: style
	$(BIN)/mypy

style: $(VENV)/.test-dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

bench: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m bench

bench-compare: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m bench compare

# Whether a row lost from one commit to another: make bench-versus BEFORE=main AFTER=HEAD ROWS=lock-step,pipelined; AFTER=. is this checkout.
bench-versus: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m bench versus $(BEFORE) $(AFTER) $(BENCH_ARGS)

# A flame graph of the broker under a row: make profile ROW=lock-step. py-spy may attach as root or with kernel.yama.ptrace_scope=0.
profile: $(VENV)/.installed $(VENV)/.test-dependencies
	@$(PIP) py-spy
	$(BIN)/python -m bench profile $(ROW)

simulate: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.simulation --nodes $(NODES) --seeds $(SEEDS) --first $(FIRST) $(SIMULATE_ARGS)

crash: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.faults.crash --rounds $(ROUNDS)

# Faults on a cluster of four under load: make chaos MINUTES=60; CHAOS_ARGS="--power", "--mixed", "--shape two", "--faults trim,restart" …
chaos: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.faults.chaos --minutes $(MINUTES) $(CHAOS_ARGS)

# Copiers in transactions while nodes and clients are killed: make transactions MINUTES=60; CHAOS_ARGS="--nodes 1", "--mixed" …
transactions: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.faults.transactions --minutes $(MINUTES) $(CHAOS_ARGS)

# Hostile clients of every kind, with honest ones beside them: make attack SECONDS=3600. 900 seconds are a full campaign. At a secured broker,
# logged in or not: DOOR=secured, DOOR=strangers. So of the next, too.
attack: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.attack --seconds $(SECONDS) $(if $(DOOR),--$(DOOR))

# Inputs of every kind at every API of both listeners: make fuzz SECONDS=600 SEED=7.
fuzz: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) $(if $(DOOR),--$(DOOR))

# Random steps to Apache Kafka and to this broker, all answers compared: make compare SEEDS=200 FUZZER=data (or admin, consumer-groups). All fuzzers without one.
compare: $(VENV)/.installed $(VENV)/.test-dependencies
	$(BIN)/python -m tests.peers.differential --seeds $(SEEDS) --first $(FIRST) $(if $(FUZZER),--fuzzer $(FUZZER))

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps are written last, so that an interrupted step is done again.

$(VENV)/.created:
	@if [ -z "$(PYTHON)" ]; then echo "Barnabas needs Python 3.11 or newer, and none was found on the PATH (make PYTHON=/path/to/python3 tells where it is)." >&2; exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment; on Debian and Ubuntu: sudo apt-get install -y python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.dependencies: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing Barnabas's dependencies into $(VENV) …"
	@$(PIP) hatchling $$($(BIN)/python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*p["dependencies"], *p["optional-dependencies"]["cli"], *(name for name in p["optional-dependencies"]["console"] if not name.startswith("barnabas[")))')
	@touch $@

# The wheel, as users get it; pip compiles its .pyc files, without which a start takes 0.7 s.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	@$(PIP) --no-deps --no-build-isolation --force-reinstall .
	@touch $@

# Of one extra only: .venv/.docs-dependencies, .venv/.package-dependencies.
$(VENV)/.docs-dependencies $(VENV)/.package-dependencies: $(VENV)/.%-dependencies: $(VENV)/.created pyproject.toml constraints.txt
	@$(PIP) $$($(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["$*"])')
	@touch $@

$(VENV)/.test-dependencies: $(VENV)/.dependencies
	@echo "Installing the test dependencies (pyspark is large) …"
	@$(PIP) $$($(BIN)/python -c 'import tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print(*(name for extra in ("pipeline", "schemas", "cli", "console", "docs", "test") for name in extras[extra] if not name.startswith("barnabas[")))')
	@touch $@
