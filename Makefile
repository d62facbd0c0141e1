# make serve   set up everything and serve the default model on http://127.0.0.1:8080/v1
# make test    set up everything and run every check (what CI runs)
# make audit   known vulnerabilities of what is installed, where their service can be reached
#
# Both work on a fresh machine with Python 3.11 or newer, and are instant the second time.
# PYTHON=/path/to/python picks the interpreter; ARGS="--parallel 8" adds flags to `surefoot serve`.

SHELL := /bin/sh
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore $(BIN)/python -m pip install --quiet
PYTHON ?=
CANDIDATES := $(PYTHON) python3 python3.14 python3.13 python3.12 python3.11
SUITABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
PYTEST_ARGS ?=

.DELETE_ON_ERROR:
.PHONY: serve test lint check-model audit clean

serve: $(VENV)/.installed
	@exec $(BIN)/surefoot serve --host 127.0.0.1 --port 8080 $(ARGS)

test: lint check-model
	$(BIN)/python -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict src

check-model: $(VENV)/.installed-dev
	@$(BIN)/surefoot pull default

# Known vulnerabilities of everything installed. Where the service cannot be reached this says so
# and passes; AUDIT_ARGS=--require fails there instead.
AUDIT_SERVICE := https://pypi.org/pypi/pip/24.0/json
AUDIT_ARGS ?=

audit: $(VENV)/.installed-audit
	@$(BIN)/python -m pip freeze --exclude-editable > $(VENV)/audited.txt
	@$(BIN)/python deploy/if_reachable.py $(AUDIT_ARGS) $(AUDIT_SERVICE) \
		$(BIN)/pip-audit --strict --no-deps --disable-pip --progress-spinner off \
		--requirement $(VENV)/audited.txt

$(VENV)/bin/python:
	@for candidate in $(CANDIDATES); do \
		if "$$candidate" -c '$(SUITABLE)' >/dev/null 2>&1; then \
			echo "creating $(VENV) with $$candidate"; \
			"$$candidate" -m venv $(VENV) && exit 0; \
		fi; \
	done; \
	echo "make: no usable Python found: surefoot needs Python 3.11 or newer with the venv module" >&2; \
	echo "make: (on Debian and Ubuntu: apt install python3-venv), or name one: make PYTHON=/path/to/python3" >&2; \
	exit 1

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo "installing surefoot into $(VENV)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "installing surefoot and its development tools into $(VENV)"
	@$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-audit: $(VENV)/.installed-dev
	@echo "installing pip-audit into $(VENV)"
	@$(PIP) --editable '.[audit]'
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
