# Needs Python 3.11 or newer, git, and a POSIX shell. Uses nothing newer than GNU make 3.81, which macOS ships.
#
# Each target makes what it needs: `.venv` with the versions locked in release/requirements/. Three files in `.venv` say what
# is in it. `.complete` holds the folder it was made for; it is absent while an installation runs, so a `.venv` that
# was interrupted, or copied from elsewhere, is made anew. `.demo`, `.dev` and `.parity` say which lock files it was
# made from.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
# Many tests wait for what they started: one process more than the two cores of a small machine keeps both busy.
JOBS ?= 3
ARGS ?=
COVERAGE ?=

BENCHMARKS := bus load bombs jobs signing mcp web judging codec codec_memory verify_size server

NPM_FOLDERS := tests/engine/serve/node integrations/node

PY := .venv/bin/python
# A line that names $(MAKE) itself runs even under `make -n`.
SELF := $(MAKE)
CHECK := .venv/bin/check-jsonschema --builtin-schema

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test check coverage lint bench measure results real fuzz conformance docs parity cluster node dist clean

# The interpreter may also have gone, or moved to another version that looks for its packages elsewhere.
$(shell test "$$(cat .venv/.complete 2>/dev/null)" = "$(CURDIR)" && $(PY) -c 'import editables' 2>/dev/null \
	|| rm -f .venv/.complete .venv/.demo .venv/.dev .venv/.parity)

help:
	@echo "make demo    run real jobs over a throw-away bus, from request to verified result"
	@echo "make test    run the quick tests     (ARGS='-k name' goes to pytest, JOBS=0 for one process)"
	@echo "make check   run all tests, also the long ones, then make lint"
	@echo "make lint    check style, types, import directions, workflows and schemas"
	@echo "make bench   measure everything (most of an hour): the two that follow"
	@echo "make measure measure the bus, the runner and the codecs, and print the figures"
	@echo "make results measure the engine and write docs/results.md and docs/results/tiny.md  (ARGS=--render: write them again)"
	@echo "make real    get a real model, SmolLM2, and measure a little of it (some minutes)"
	@echo "make fuzz    fuzz what reads hostile input  (ARGS=60: for 60 seconds a target)"
	@echo "make conformance  run the public MCP conformance suite (needs npm)"
	@echo "make docs    write the generated parts of docs/ anew, and count the words"
	@echo "make parity  add the published drafter code, HTTP suites and clients to .venv, for their tests"
	@echo "make node    check the client for Node.js: style, types, tests, package (needs npm)"
	@echo "make dist    build a release into dist/: two wheels and the source distribution"
	@echo "make clean   remove .venv and everything else that was made here"
	@echo
	@echo "Every target sets itself up. PYTHON=/path/to/python3 chooses the interpreter (3.11 or newer)."

demo: .venv/.demo
	@.venv/bin/kakeya demo $(ARGS)

# Tests start Python hundreds of times. Without its cached byte code, each start would compile all of our modules.
# COVERAGE=1 notes which lines of the product they reach; `make coverage` prints that.
PYTEST = PYTHONDONTWRITEBYTECODE= $(PY) $(if $(COVERAGE),-m coverage run) -m pytest -n $(JOBS) --dist worksteal

test: .venv/.dev
	@$(PYTEST) -m "not long and not sweep" $(ARGS)

check: .venv/.dev
	@$(PYTEST) $(ARGS); tests=$$?; $(SELF) --no-print-directory lint && exit $$tests

coverage: .venv/.dev
	@$(PY) -m coverage combine --quiet
	@$(PY) -m coverage report

lint: .venv/.dev
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports
	.venv/bin/zizmor --offline --persona=regular --strict-collection --no-progress --quiet .github
	$(CHECK) vendor.github-workflows .github/workflows/*.yaml
	$(CHECK) vendor.github-actions .github/actions/run/action.yml
	$(CHECK) vendor.dependabot .github/dependabot.yml
	$(CHECK) vendor.github-issue-forms .github/ISSUE_TEMPLATE/bug.yml .github/ISSUE_TEMPLATE/preset.yml
	$(CHECK) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(CHECK) vendor.citation-file-format --default-filetype yaml CITATION.cff

bench: measure results

measure: .venv/.dev
	@for name in $(BENCHMARKS); do $(PY) benchmarks/$$name.py $(ARGS) || exit 1; done

results: .venv/.dev
	@$(PY) -m benchmarks.results $(ARGS)

real: .venv/.dev
	@$(PY) -m benchmarks.real

# atheris has no wheel for every system, so it is not locked with the rest, and nothing is fuzzed without it.
fuzz: .venv/.dev
	@$(PY) -m pip install --quiet atheris==3.0.0 >/dev/null 2>&1 || true
	@$(PY) -P tests/fuzz/run.py $(or $(ARGS),30)

conformance: .venv/.dev
	@$(PY) tests/mcp/conformance.py

docs: .venv/.dev
	@$(PY) docs/build_cli.py
	@$(PY) docs/build_context.py
	@$(PY) docs/build_presets.py
	@$(PY) docs/build_rules.py
	@$(PY) docs/build_skill.py
	@$(PY) docs/build_schema.py
	@$(PY) docs/count_words.py

parity: .venv/.parity $(NPM_FOLDERS:%=%/node_modules/.package-lock.json)

# Each fault in each phase, and ranks in network namespaces if this machine allows them.
cluster: .venv/.dev
	@$(PY) -m pytest -m "" tests/engine/cluster $(ARGS)

node: .venv/.dev integrations/node/node_modules/.package-lock.json
	@$(PY) -m pytest -m "not sweep" tests/integrations/test_node.py $(ARGS)

# They are copied to another machine together: docs/install.md says how they are installed there.
dist: build/release/.complete
	@rm -rf dist
	@release/build dist $(CURDIR)/build/release/bin/python
	@ls dist/*

# Only what builds a release: the build tools, and the programs' own packages, whose help becomes the manual pages.
build/release/.complete: release/requirements/release.txt
	@$(PYTHON) -m venv --clear build/release
	@build/release/bin/python -m pip install --quiet --require-hashes -r release/requirements/release.txt
	@touch $@

clean:
	rm -rf .venv build dist $(NPM_FOLDERS:%=%/node_modules) integrations/node/build integrations/node/dist *.egg-info .coverage* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# $(call install,LOCK): the locked versions, then this checkout itself, so that an edit counts at once.
define install
	@test -n "$(PYTHON)" && $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		echo "This needs Python 3.11 or newer, and '$(or $(PYTHON),python3)' is not one." >&2; \
		echo "Name one that is: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -e .venv/.complete || { echo "Making .venv with $(PYTHON)"; $(PYTHON) -m venv --clear .venv; }
	@rm -f .venv/.complete .venv/.demo .venv/.dev .venv/.parity
	@echo "Installing release/requirements/$(1).txt into .venv (log: .venv/install.log)"
	@{ $(PY) -m pip install --require-hashes -r release/requirements/$(1).txt && \
		$(PY) -m pip install --no-deps --no-build-isolation -e .; } >.venv/install.log 2>&1 || { \
		tail -n 20 .venv/install.log >&2; exit 1; }
	@echo "$(CURDIR)" >.venv/.complete
endef

.venv/.demo: release/requirements/demo.txt pyproject.toml release/hatch_build.py
	$(call install,demo)
	@touch $@

# dev.txt holds all of demo.txt in the same versions.
.venv/.dev: release/requirements/dev.txt pyproject.toml release/hatch_build.py
	$(call install,dev)
	@touch .venv/.demo $@

# parity.txt differs from dev.txt where the published package wants other versions, and has nothing of the linters.
.venv/.parity: release/requirements/parity.txt .venv/.dev
	@echo "Adding release/requirements/parity.txt to .venv (log: .venv/parity.log)"
	@$(PY) -m pip install --require-hashes -r release/requirements/parity.txt >.venv/parity.log 2>&1 || { \
		tail -n 20 .venv/parity.log >&2; exit 1; }
	@touch $@

# npm writes this file last. Without npm there is none, and the tests say so.
%/node_modules/.package-lock.json: %/package-lock.json
	@if command -v npm >/dev/null; then echo "Installing $< into $*/node_modules" && \
		npm ci --prefix $* --loglevel=error --no-audit --no-fund --ignore-scripts; \
		else echo "npm is not on the PATH: the packages of $* are not installed"; fi
