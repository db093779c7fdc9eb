# The workshop. On a fresh machine `make demo` and `make test` are all that is needed.
# Needs Python 3.11 or newer and a C compiler; a Java for Spark comes as a wheel.

VENV   := .venv
PY     := $(VENV)/bin/python
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

.DEFAULT_GOAL := help
.PHONY: help install check quick test lowest demo bench bench-kafka docs sim soak mutate clean

help:
	@echo "make demo     a broker, a stream, a tier and Spark, start to end; TIER=s3: the tier in an S3 server"
	@echo "make quick    unit and golden tests but the slow ones: two minutes"
	@echo "make test     every test (installs what is missing first)"
	@echo "make lowest   the tests that notice a dependency too old, with the lowest versions of pyproject.toml"
	@echo "make check    formatting, lint, types, import rules, tidy rules"
	@echo "make soak     simulated hours, kills and power cuts; goes on where it stopped (ledger/soak.jsonl)"
	@echo "make mutate   negate conditions, drop statements, and see who notices (ledger/mutants.jsonl)"
	@echo "make sim      one simulated history, by seed: make sim SEED=42"
	@echo "make bench    measurements; each prints a ratio to a named baseline"
	@echo "make bench-kafka  the same load on us and on Apache Kafka, ratios"
	@echo "make docs     regenerate docs/reference from the declarations"
	@echo "make install  only the virtual environment in $(VENV)"

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml tools/install.sh src/firnline/_native.c src/firnline/_compaction.h src/firnline/_decode.h src/firnline/_catalog.h
	@bash tools/install.sh "$(PYTHON)" "$(VENV)"
	@touch $@

# Tools from the system that some tests use; without root or apt those tests say what they lacked.
$(VENV)/peers: tools/install_peers.sh | $(VENV)/installed
	@bash tools/install_peers.sh "$(VENV)"
	@touch $@

check: $(VENV)/installed
	@$(VENV)/bin/ruff format --check src tests
	@$(VENV)/bin/ruff check src tests
	@$(VENV)/bin/mypy
	@$(VENV)/bin/lint-imports --no-cache
	@$(PY) -m pytest -q -p no:cacheprovider tests/test_tidy.py tests/test_docs.py

# FIRNLINE_FREEZE makes every event and effect immutable, so a test sees a machine that alters one.
# Bytecode is kept from run to run: some hundred processes are started, and all workers load every test.
PYTEST := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/bytecode FIRNLINE_FREEZE=1 $(PY) -m pytest

# What is quick and needs nothing but Python. A slow unit test says so itself (the marker `slow` in pyproject.toml).
QUICK := tests/unit tests/golden tests/test_tidy.py tests/test_docs.py
NOT_QUICK = $(filter-out tests/data tests/peers tests/__pycache__ $(QUICK),$(patsubst %/,%,$(wildcard tests/*/)))
quick: $(VENV)/installed
	@$(PYTEST) -n logical --dist loadfile -m 'not slow and not soak' $(QUICK); passed=$$?; \
	echo "Left out: `grep -rl 'pytest\.mark\.slow' tests/unit --include=test_*.py | wc -l` slow files of tests/unit," \
		"alone: $(PY) -m pytest -n logical -m slow tests/unit"; \
	echo "Left out: $(NOT_QUICK); with everything else: make test"; exit $$passed

# The tests of a file stay with one worker (docs/decisions/0014). What several would fetch is fetched before.
# Two workers wait for processes half of the time: of them and the one that computes no core is idle.
# A test that nothing else ends says where it stands, and ends its worker and the run.
# CHECKED=1: `make check` has run the two files that it shares with this.
TEST_JOBS ?= 3
HANGS_S := 960
test: $(VENV)/installed $(VENV)/peers
	@[ "$$FIRNLINE_PEERS" != 1 ] || for peer in kafka s3 azurite hdfs spark_kafka frameworks promtool; do \
		$(PY) -m tests.peers.$$peer fetch >/dev/null || true; done
	@$(PYTEST) -n $(TEST_JOBS) --dist loadfile --max-worker-restart 0 --durations=40 \
		-o faulthandler_timeout=$(HANGS_S) -o faulthandler_exit_on_timeout=true \
		$(if $(CHECKED),--ignore=tests/test_tidy.py --ignore=tests/test_docs.py)

# With the lowest versions that pyproject.toml declares. Of Spark those that a query goes through, of 4.1 no stream.
LOWEST_PYTHON ?= python3.11
LOWEST := .lowest
LOWEST_TESTS := tests/unit tests/golden $(addprefix tests/spark/test_,$(addsuffix .py,source tables filters \
	filters_of_spark gaps plans_kept said_to_users past_and_tail scan))
lowest: $(LOWEST)/installed
	@$(LOWEST)/bin/python -m pytest -q -p no:cacheprovider -n $(TEST_JOBS) --dist loadfile $(LOWEST_TESTS)

$(LOWEST)/installed: pyproject.toml tools/install.sh tests/lowest.py src/firnline/_native.c
	@$(LOWEST_PYTHON) -m tests.lowest > $(LOWEST).txt
	@bash tools/install.sh "$(LOWEST_PYTHON)" $(LOWEST) $(LOWEST).txt
	@touch $@

demo: $(VENV)/installed
	@PYTHONPATH=. $(PY) examples/flights/demo.py $(if $(TIER),--tier $(TIER))

# make bench, or one of them: make bench QUESTION=requests. slow_steps has nothing to compare with: by name only
QUESTION ?= $(filter-out measure echo sink beats slow_steps, $(basename $(notdir $(wildcard bench/*.py))))
bench: $(VENV)/installed
	@for question in $(QUESTION); do echo "== $$question"; $(PY) -m bench.$$question || exit 1; done

SOAK_HOURS ?= 100
SOAK_MINUTES ?= 60
AGING_MINUTES ?= 10
soak: $(VENV)/installed
	@FIRNLINE_PEERS=1 $(PY) -m pytest -q -m soak tests/spark/test_cluster.py tests/sim/test_seeds.py tests/mutants tests/unit/native/test_choice.py
	@$(PY) -m tests.sim.soak --hours $(SOAK_HOURS) --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.sim.soak --form cluster --hours $(SOAK_HOURS) --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.sim.soak --form tiered --hours $(SOAK_HOURS) --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.chaos.soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.tier_damage_soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.fuzz.soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.fuzz.stored_soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.fuzz.lies_soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.explore_soak --minutes $(SOAK_MINUTES)
	@$(PY) -m tests.aging.cycles --minutes $(AGING_MINUTES)

MUTANTS ?= 1500
MUTATE_MINUTES ?= 60
mutate: $(VENV)/installed
	@$(PY) -m tests.mutate.run --count $(MUTANTS) --minutes $(MUTATE_MINUTES)

SEED ?= 1
sim: $(VENV)/installed
	@$(PY) -m firnline sim run --seed $(SEED)

# Beside Apache Kafka itself: both warmed with 2 GB, rounds in turn. Wants an idle machine and ten minutes.
bench-kafka: $(VENV)/installed $(VENV)/peers
	@$(PY) -m bench.kafka

docs: $(VENV)/installed
	@$(PY) -m firnline.config.render > docs/reference/config.md
	@$(PY) -m firnline.base.log_lines.render > docs/reference/logs.md
	@$(PY) -m firnline.cli.terminal.reference > docs/reference/cli.md
	@$(PY) -m firnline.server.broker_metrics.reference > docs/reference/metric-families.md

clean:
	rm -rf $(VENV) $(LOWEST) $(LOWEST).txt src/*.egg-info src/firnline/_native*.so build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-out .mutate
