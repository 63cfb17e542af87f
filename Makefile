# `make test` and `make demo` need nothing but Python 3.11 or newer: scripts/prepare makes the rest.
SHELL := /bin/sh
PYTHON := .venv/bin/python

.PHONY: help test soak bench demo demo-ui docs check audit format lock wheels clean env

help:
	@echo 'make test     every suite, one after the other, with the time each took'
	@echo 'make demo     two minutes with a real Kafka, Spark and Dagster, step by step'
	@echo 'make demo-ui  the same, and Dagster stays open in the browser'
	@echo 'make docs     the documentation as a site, in artifacts/docs'
	@echo 'make check    formatting, linting, types, layers, the Helm chart'
	@echo 'make audit    known holes in what is installed, and a list of all of it (SBOM)'
	@echo 'make soak     the long suites'
	@echo 'make bench    speed and scale, measured'
	@echo 'make env      only the environment: packages, Java, jars, Chromium'
	@echo 'make lock     the lock file again, from pyproject.toml'
	@echo 'make wheels   what an index would hold, into dist/'
	@echo 'make clean    removes the environment, caches and artifacts'

env:
	@scripts/prepare packages java jars chromium promtool

test:
	@scripts/prepare packages java jars chromium promtool
	@$(PYTHON) scripts/run_suites.py test

soak:
	@scripts/prepare packages java jars chromium promtool
	@$(PYTHON) scripts/run_suites.py soak

bench:
	@scripts/prepare packages java jars
	@$(PYTHON) -m bench

demo:
	@scripts/prepare packages java jars
	@$(PYTHON) -m examples.demo

demo-ui:
	@scripts/prepare packages java jars
	@$(PYTHON) -m examples.demo --ui

docs:
	@scripts/prepare packages
	@NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --quiet
	@echo 'artifacts/docs/index.html'

check:
	@scripts/prepare packages charts
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .
	$(PYTHON) -m mypy
	.venv/bin/lint-imports
	$(PYTHON) scripts/check_deploy.py

audit:
	@scripts/prepare packages
	@scripts/audit

format:
	@scripts/prepare packages
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lock:
	@scripts/prepare packages
	@scripts/lock

wheels:
	@scripts/prepare packages
	@scripts/wheels

clean:
	@if [ -x $(PYTHON) ] && [ -d var/dev ]; then $(PYTHON) -m crkafka_core.cli.main dev down || true; fi
	rm -rf .venv .cache artifacts build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
