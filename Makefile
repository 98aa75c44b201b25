# One word for each thing that one does here; `make help` lists them.
# Python 3.11 or newer and make are all that must be there before.

SHELL := /bin/sh
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -q
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# A virtual environment that does not run any more (Python was replaced) is made anew.
ifneq ($(shell $(PY) -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null),True)
$(shell rm -rf $(VENV))
endif

.DEFAULT_GOAL := help
.PHONY: help run test lint format bench faults demo real-llm lock clients clis fuzz lighthouse sbom audit

help: ## List these words
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

run: $(VENV)/.installed ## Start everything: database, web server, background workers
	@exec $(PY) manage.py up --tied

test: $(VENV)/.installed-dev ## Run the tests (ARGS="-k word" to choose)
	@exec $(PY) -m pytest $(ARGS)

lint: $(VENV)/.installed-dev ## Check style, types, migrations and templates
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy .
	$(PY) -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	@find templates -name '*.html' -print0 | xargs -0 -r $(VENV)/bin/djade --target-version 5.2 --check

format: $(VENV)/.installed-dev ## Bring style and templates into shape
	$(PY) -m ruff check --fix-only -q .
	$(PY) -m ruff format -q .
	@find templates -name '*.html' -print0 | xargs -0 -r $(VENV)/bin/djade --target-version 5.2 || true

bench: $(VENV)/.installed-dev ## Measure (ARGS="claims" for one figure)
	@exec $(PY) -m tests.bench $(ARGS)

faults: $(VENV)/.installed-dev ## Kill, cut and starve it for an hour (ARGS="T1 T13" for some)
	@exec $(PY) -m tests.faults.run $(ARGS)

demo: $(VENV)/.installed ## Make the demo company, also in a database that is not empty
	@exec $(PY) manage.py demo $(ARGS)

clients: ## Install the clients that nobody here wrote, for their tests (needs Node 20 and npm)
	cd tests/clients && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error

clis: ## Install the agent programs in exact versions, for their tests (Node 20, npm, 1.1 GB)
	scripts/install_clis.sh

lighthouse: $(VENV)/.installed-dev ## Audit the main pages (needs Node 20, npm and Chromium)
	cd tests/audits && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@exec $(PY) -m tests.audits

fuzz: $(VENV)/.installed-dev ## Send the API thousands of made-up calls
	@PAPERCLIP_FUZZ_EXAMPLES=200 PAPERCLIP_FUZZ_WORKFLOWS=60 exec $(PY) -m pytest \
		tests/api/test_fuzzing.py -o timeout=0 $(ARGS)

real-llm: $(VENV)/.installed-dev ## Build a small local model server once and test against it
	scripts/real_llm.sh build
	@exec $(PY) -m pytest -m real_llm $(ARGS)

lock: ## Pin the requirements anew, with hashes (needs uv)
	@command -v uv >/dev/null || { echo "make lock needs uv: https://docs.astral.sh/uv/"; exit 1; }
	uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header requirements.in -o requirements.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header requirements-tracing.in -o requirements-tracing.txt
	uv pip compile -q --universal --python-version 3.11 --generate-hashes \
		--no-emit-index-url --no-header requirements-dev.in -o requirements-dev.txt

SBOM ?= sbom.json
sbom: $(VENV)/.installed-dev ## Write what Paperclip is made of as CycloneDX (SBOM=file)
	@exec $(PY) -m scripts.sbom $(SBOM)

audit: $(VENV)/.installed-dev ## Ask whether something is known against a pinned requirement
	@exec $(PY) -m scripts.audit

# --- set-up -----------------------------------------------------------------------------------------

$(VENV)/.made:
	@test -n "$(PYTHON)" || { \
		echo "Paperclip needs Python 3.11 or newer, and there is none on the PATH."; exit 1; }
	@echo "Making the virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "$(PYTHON) cannot make virtual environments; on Debian: apt install python3-venv"; \
		exit 1; }
	@touch $@

$(VENV)/.installed: requirements.txt $(VENV)/.made
	@echo "Installing the requirements ..."
	@$(PIP) install --require-hashes -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements-dev.txt requirements.txt $(VENV)/.made
	@echo "Installing the requirements for development ..."
	@$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $(VENV)/.installed $@
