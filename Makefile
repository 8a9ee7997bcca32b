# Two commands for a newcomer, with nothing but Python 3.11+ (with pip) and make on the machine:
#
#   make demo     the example shop, its workers and its admin; no server needed.  Stays until Ctrl-C.
#                 ARGS=--once does the work, checks it and ends.  STORE=redis://… uses a server elsewhere.
#   make test     every test, against a real server (one found, or one fetched; REDIS_URL=… for the store's tests).
#                 ARGS="tests/unit -x" goes to pytest.  SERVER=oldest and SERVER=newest fetch such a server.
#   make quick    lint, and the tests that answer within a minute: while you write.
#
# And for developers:  make check · lint · types · docs · site · pictures · bench · survival · mutants · acceptance · matrix · oldest · newest · dist · clean

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
# A stamp per set of packages, named by what pyproject.toml says: a change there installs again, nothing else does.
SUM := $(shell cksum < pyproject.toml | cut -d ' ' -f 1)
STORE ?= embedded
ARGS ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes, and each would compile the project again.
unexport PYTHONDONTWRITEBYTECODE
ifdef REDIS_URL
export REDIS_URL
endif
# "oldest": Redis 6.2; "newest": the newest Valkey in a wheel; else what is found, or fetched.
SERVER ?=
export SERVER
# Tests wait more than they calculate: two processes for each core.
WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2))
export WORKERS
# Continuous integration runs the tests of the store on a Cluster, too, in a sample.
STORES ?= redis$(if $(filter true,$(CI)), cluster)
# Puts the server for the demo and the tests in front of PATH, for the command that follows.
WITH_SERVER = folder=$$($(BIN)/python -m tools.redis_server $(VENV)/redis) && export PATH="$${folder:+$$folder:}$$PATH"

.PHONY: demo test quick check lint types docs site pictures bench survival mutants acceptance matrix oldest newest dist clean help
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# \{0,1\}//p' Makefile | head -9

demo: $(VENV)/.demo-$(SUM)
	@$(if $(filter embedded,$(STORE)),$(WITH_SERVER),true) && cd example_project && SHOP_STORE='$(STORE)' $(abspath $(BIN))/python -m demo $(ARGS)

test: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && STORES="$(STORES)" $(BIN)/python -m pytest -n $(WORKERS) $(ARGS)

quick: lint
	@$(WITH_SERVER) && DOSE=quick CONTRACT=4 STORES=redis $(BIN)/python -m pytest -q -n $(WORKERS) \
	  tests/test_architecture.py tests/unit tests/contract $(ARGS)

check: lint types test

lint: $(VENV)/.dev-$(SUM)
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/.dev-$(SUM)
	@$(BIN)/mypy

docs: $(VENV)/.dev-$(SUM)
	@$(BIN)/python -m tools.acceptance && $(BIN)/python -m tools.options && $(BIN)/python -m pytest -q tests/docs

# The documents as a site, in build/site.  A warning is an error.
site: $(VENV)/.dev-$(SUM)
	@$(BIN)/python -m sphinx -q -W --keep-going -n -b html docs build/site && echo "build/site/index.html"

bench: $(VENV)/.bench-$(SUM)
	@$(BIN)/python -m bench $(ARGS)

# `make test` runs a dose of these tests; here they kill processes by the hundred.
survival: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && DOSE=long $(BIN)/python -m pytest tests/survival --timeout=0 $(ARGS)

# Each promise is broken once, in a copy; the table says which test notices.  ARGS="NAME …" tries only these.
mutants: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && $(BIN)/python -m tools.mutants $(ARGS)

# The promise of each row of docs/contributing/acceptance.md is broken once, and a test of the row must notice.
# ARGS="G01 …" tries only these rows.
acceptance: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && DOSE=quick STORES=redis $(BIN)/python -m tools.acceptance --break $(ARGS)

# The pictures of README and the guide, drawn anew by the browser.  Look at them before you commit them.
pictures: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && SCREENSHOTS=docs/images $(BIN)/python -m pytest -q tests/browser/test_pictures.py $(ARGS)

# Pythons, Djangos and redis-pys in pairs, on the interpreters this machine has: an hour and a half on two cores.
matrix: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && $(BIN)/nox --session tests $(ARGS)

# What needs a Redis, on the oldest server, Django, redis-py, croniter and django-redis; CI runs it.
oldest: SERVER := oldest
oldest: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && $(BIN)/nox --session oldest $(ARGS)

# A few minutes of the newest server, Python here, Django and redis-py; CI runs it.
newest: SERVER := newest
newest: $(VENV)/.dev-$(SUM)
	@$(WITH_SERVER) && $(BIN)/nox --session newest $(ARGS)

dist: $(VENV)/.dev-$(SUM)
	@$(BIN)/python -m build

clean:
	rm -rf $(VENV) dist build example_project/.state

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "django_jobs needs Python 3.11 or newer, and found none on PATH." >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "Could not make $(VENV): install Python's venv module (Debian: python3-venv)." >&2; exit 1; }

# pip reads [dependency-groups] from 25.1 on.
$(VENV)/.pip: | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1' && touch $@

$(VENV)/.demo-$(SUM): | $(VENV)/.pip
	@echo "Installing what the demo needs into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --editable . --group demo && touch $@

$(VENV)/.dev-$(SUM): | $(VENV)/.pip
	@echo "Installing what the tests need into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --editable '.[api,metrics]' --group dev && touch $@

$(VENV)/.bench-$(SUM): | $(VENV)/.dev-$(SUM)
	@$(BIN)/python -m pip install --quiet --group bench && touch $@
