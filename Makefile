# Every target sets up what it needs, in .venv, through the versions in constraints.txt.
# The Python that constraints.txt was tested with, or whatever there is and runs from 3.11 on.
NEW_ENOUGH := import sys, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3 python,\
	$(shell $(name) -c '$(NEW_ENOUGH)' 2>/dev/null && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Any broken link, and anything that another host would be asked for, is an error.
SITE := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: setup demo test check style types pages bench paper ablations accuracy more contest small trace docs release clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "protopinv needs Python 3.11 or newer, and none was found." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/protopinv demo

# One thread a worker: small matrices slow down many times over when threads fight for cores.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# Three parts that need nothing of each other: make --jobs=2 check takes as long as the longest.
check: style types pages

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python .ci/words.py

types: $(READY)
	$(BIN)/mypy

pages: $(READY)
	$(BIN)/python docs/generate.py --check
	$(SITE)

# Measurements take OPTIONS, for example: make paper OPTIONS=--quick
bench: $(READY)
	$(BIN)/python -m benchmarks speed $(OPTIONS)

# What a call passes through: OPTIONS="--before ../older/src" compares with another checkout.
paper ablations accuracy more contest small trace: $(READY)
	$(BIN)/python -m benchmarks $@ $(OPTIONS)

docs: $(READY)
	$(BIN)/python docs/generate.py
	$(SITE)

# In a new environment, without constraints.txt; PIP_CONSTRAINT may name a file that pins torch alone.
release: $(READY)
	$(BIN)/python .ci/release.py

clean:
	rm -rf $(VENV) site dist .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
