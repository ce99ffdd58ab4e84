# Two commands: `make demo` shows what Crescendo does, `make test` shows that it works. Both do all set-up themselves.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SETUP := $(VENV)/.setup-done
DEV_SETUP := $(VENV)/.setup-dev-done
SYSTEM_SETUP := $(VENV)/.setup-system-done
JAVA_SYSTEM_SETUP := $(VENV)/.setup-java-systems-done
SOAK_SETUP := $(VENV)/.setup-soak-done
ARGS ?=
WORKERS ?= 2
# When ARGS selects tests, one of the two steps may have none (pytest exits with 5 then).
MAY_BE_EMPTY = $(if $(ARGS),|| [ $$? -eq 5 ])

.PHONY: help setup ready demo test soak check format bench clean

help:  ## list the targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(SETUP)  ## create the virtual environment, install the package and Java

demo: $(SETUP)  ## run the built-in experiment and write its report
	@$(BIN)/crescendo demo $(ARGS)

# What the tests need. First all that several parts use, then the parts side by side: they wait for different things.
ready: $(SETUP)
	@bash .ci/packages cc=gcc mvn=maven chromium
	@# For clusters of namespaces, which only root's tests have.
	@[ "$$(id -u)" -ne 0 ] || bash .ci/packages faketime
	@$(MAKE) --no-print-directory -j3 $(DEV_SETUP) $(SYSTEM_SETUP) $(JAVA_SYSTEM_SETUP)

test: ready  ## run the test suite
	$(BIN)/python -m pytest -m "not soak and not quiet" -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(ARGS) $(MAY_BE_EMPTY)
	$(BIN)/python -m pytest -m "quiet and not soak" $(ARGS) $(MAY_BE_EMPTY)

soak: ready $(SOAK_SETUP)  ## run the test suite with the long versions
	$(BIN)/python -m pytest --timeout 3600 $(ARGS)

check: $(DEV_SETUP)  ## check format, lint, types and layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(DEV_SETUP)  ## format the code and apply lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(DEV_SETUP)  ## run the benchmarks and print ratios measured in one run
	$(BIN)/python -m bench $(ARGS)

clean:  ## remove everything that was built, except recordings
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(SETUP): pyproject.toml .ci/java
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Crescendo needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12" >&2; exit 2; }
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing Crescendo into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@bash .ci/java
	@echo "warming up Spark once, so that it starts faster from now on"
	@$(BIN)/python -m crescendo.pipeline.rehearsal >/dev/null
	@touch $@

$(DEV_SETUP): $(SETUP)
	@bash .ci/packages cc=gcc
	@echo "installing the test dependencies into $(VENV) (python-qpid-proton is compiled, which takes a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

$(SYSTEM_SETUP): $(SETUP) .ci/packages
	@# For clusters of namespaces, which only root's tests have. The service of the package is not started.
	@[ "$$(id -u)" -ne 0 ] || command -v sshd >/dev/null || $(BIN)/python -c \
	  "from crescendo.systems.install.packages import install_package; install_package('openssh-server', None, print)"
	@for kind in rabbitmq mosquitto; do $(BIN)/crescendo system install $$kind || exit; done
	@touch $@

$(JAVA_SYSTEM_SETUP): $(SETUP) src/crescendo/systems/install/postgresql.py
	@for kind in activemq artemis qpid-broker-j jms-clients postgresql-driver; do $(BIN)/crescendo system install $$kind || exit; done
	@$(BIN)/crescendo system install postgresql --version 13
	@touch $@

$(SOAK_SETUP): $(SETUP) src/crescendo/systems/install/postgresql.py
	@# A real scraper for the dashboard. The service of the package is not started.
	@command -v prometheus >/dev/null || $(BIN)/python -c \
	  "from crescendo.systems.install.packages import install_package; install_package('prometheus', None, print)"
	@for version in 14 15 17; do $(BIN)/crescendo system install postgresql --version $$version || exit; done
	@touch $@
