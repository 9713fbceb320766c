# The one door: `make` lists what can be done. Everything is installed in .venv on first use.

SHELL := /bin/bash
.DEFAULT_GOAL := help

PYTHON ?= python3
export PYTHON

PYTEST := .venv/bin/python -m pytest -n 2 --dist loadgroup
WITH_JAVA := tools/setup.sh with_java
# Strict and from nothing each time: Sphinx would not repeat the warnings of pages that it has read before.
SPHINX := sphinx-build --quiet --fresh-env --fail-on-warning --doctree-dir build/doctrees

.PHONY: help demo test test-long check docs bench lock clean

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.venv/.ready: requirements.lock pyproject.toml
	@tools/setup.sh venv

# A JVM starts faster with it, and without it the tests are the same: that it cannot be made is no reason to stop.
build/spark.jsa: .venv/.ready tools/spark_archive.py
	@echo "keeping Spark's classes in $@ (half a minute, once)"
	-@$(WITH_JAVA) .venv/bin/python tools/spark_archive.py $@ >build/spark_archive.log 2>&1

demo: .venv/.ready ## Run examples/live.py: a small app live, its views moving in the terminal
	@$(WITH_JAVA) .venv/bin/python examples/live.py

test: .venv/.ready build/spark.jsa ## Run the tests; more for pytest: make test ARGS="-k torn -x"
	@tools/setup.sh servers
	@$(WITH_JAVA) $(PYTEST) $(ARGS)

test-long: .venv/.ready build/spark.jsa ## Run all tests, also those that take minutes
	@tools/setup.sh servers
	@PENSTOCK_TEST_LONG=1 $(WITH_JAVA) $(PYTEST) -m "long or not long" $(ARGS)

check: .venv/.ready ## Lint, format, types, import rules and docs; all are run, any can fail
	@failed=0; \
	step() { echo "== $$*"; ".venv/bin/$$1" "$${@:2}" || failed=1; }; \
	step ruff check .; \
	step ruff format --check .; \
	step mypy; \
	step lint-imports --no-logo --cache-dir build/imports; \
	step $(SPHINX) -b dummy docs build/docs-check; \
	exit $$failed

docs: .venv/.ready ## Build the docs site into build/site, for reading without a network
	@rm -rf build/site
	@.venv/bin/$(SPHINX) docs build/site
	@echo "open build/site/index.html"

bench: .venv/.ready ## Run the benchmarks; one part of them: make bench ONLY=log
	@$(WITH_JAVA) .venv/bin/python -m benchmarks.run $(if $(ONLY),--only $(ONLY))

lock: ## Write requirements.lock again; newest versions: make lock ARGS=--upgrade
	@tools/setup.sh lock $(ARGS)

clean: ## Remove what these targets made: .venv, build, dist, byte code
	rm -rf .venv build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
