# Every target sets up what it needs, in .venv, through the versions in constraints.txt.
# The Python that constraints.txt was tested with, or whatever there is from 3.11 on.
PYTHON ?= $(firstword $(foreach name,python3.11 python3.12 python3.13 python3.14 python3,$(shell command -v $(name))))
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test check bench paper ablations accuracy more contest small docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/protopinv demo

# One thread a worker: small matrices slow down many times over when threads fight for cores.
test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python docs/generate.py --check

# Measurements take OPTIONS, for example: make paper OPTIONS=--quick
bench: $(READY)
	$(BIN)/protopinv bench speed $(OPTIONS)

paper ablations accuracy more contest small: $(READY)
	$(BIN)/python -m benchmarks $@ $(OPTIONS)

docs: $(READY)
	$(BIN)/python docs/generate.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
