# Two commands do everything on a fresh machine: `make quickstart` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= .ci/constraints.txt
SGLANG_VENV ?= .venv-sglang
SGLANG_VERSION := 0.5.23
export OMP_NUM_THREADS ?= 1

.PHONY: quickstart test install install-dev sglang-cpu sglang-if-possible lint types layers unit wheel bench clean

## Train three horizons with three seeds on a crafting game and write the report.
quickstart: install
	$(BIN)/python train.py --schedule schedules/quickstart/fixed_long.yaml \
	  schedules/quickstart/fixed_short.yaml schedules/quickstart/scaled.yaml --seeds 0,1,2

## Everything that CI checks.
test: install-dev sglang-if-possible lint types layers unit wheel

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(CONSTRAINTS) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) torch
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev,game,science,services,web]'
	touch $@

## SGLang for tests on a CPU, in an environment of its own: three minutes, 2.6 GB. Its packages are
## those of .ci/sglang-cpu.txt; the tests find it there or at $$SCALINGINTER_SGLANG_PYTHON.
sglang-cpu: $(SGLANG_VENV)/.installed

$(SGLANG_VENV)/.installed: .ci/sglang-cpu.txt
	$(PYTHON) -m venv $(SGLANG_VENV)
	$(SGLANG_VENV)/bin/python -m pip install --quiet --requirement .ci/sglang-cpu.txt
	$(SGLANG_VENV)/bin/python -m pip install --quiet --no-deps sglang==$(SGLANG_VERSION) torchvision==0.28.0
	touch $@

sglang-if-possible:
	$(MAKE) sglang-cpu || echo "SGLang cannot be installed here: its tests skip and say so"

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install-dev
	$(BIN)/pyrefly check

layers: install-dev
	$(BIN)/lint-imports

# A browser or a server may miss a deadline on a busy machine: what failed is tried again, alone.
unit: install-dev
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup || $(BIN)/python -m pytest -q --last-failed --last-failed-no-failures none

wheel: install-dev
	.ci/try_wheel $(VENV)

## The speed comparison with TRL (makes an environment of its own for TRL).
bench: install
	$(BIN)/python benchmarks/trl_comparison.py

clean:
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache
