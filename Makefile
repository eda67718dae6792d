# A fresh machine needs Python 3.11 or newer (with pip and venv) and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# What holds a torch made for this machine's GPU; nothing is installed into it.
GPU_PYTHON ?= python3

.PHONY: demo test fuzz check bench conformance gpu clean help

help:
	@echo "make demo    install into $(VENV), compile the demo kernels and run them"
	@echo "make test    install what the tests need and run them"
	@echo "make fuzz    check thousands of random kernels; reproducers of failures in build/fuzz/"
	@echo "make check   lint, format, types and house rules"
	@echo "make bench   measure against NumPy and torch; rows and plot in benchmarks/results/"
	@echo "make conformance   Triton's own tests, of the checkout that TRITON_SRC names, and"
	@echo "                   flash-linear-attention's kernels"
	@echo "make gpu     tests, examples and benchmark on this machine's NVIDIA GPU, by GPU_PYTHON"
	@echo "make clean   remove $(VENV) and everything that was built"

demo: $(VENV)/.core
	$(BIN)/deuteron demo $(ARGS)

test: $(VENV)/.test $(VENV)/.libraries
	$(BIN)/python -m pytest -n auto $(ARGS)

fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.run $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python tools/check_style.py

bench: $(VENV)/.test
	$(BIN)/python benchmarks/cpu.py --json benchmarks/results/cpu.json $(ARGS)
	$(BIN)/python benchmarks/plot.py benchmarks/results/cpu.json benchmarks/results/cpu.png

conformance: $(VENV)/.conformance $(VENV)/.libraries
	$(BIN)/python tools/conformance.py $(ARGS)
	$(BIN)/python -m pytest --deuteron -n auto -W ignore tests/kernels/fla/*.py

gpu: export PYTHONPATH := $(CURDIR)
gpu:
	$(GPU_PYTHON) -m pytest tests/gpu -rs $(ARGS)
	for example in examples/[0-9]*.py; do \
	    $(GPU_PYTHON) $$example --device cuda || exit 1; \
	done
	$(GPU_PYTHON) benchmarks/gpu.py --json benchmarks/results/gpu.json

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# One stamp for each set of extras: an install is repeated only when pyproject.toml changes.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "Python 3.11 or newer is needed; say which with: make PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) install -e .
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[test]'
	@touch $@ $(VENV)/.core

# Without what they ask for, which is triton: ours stands for it (docs/adr/0011).
$(VENV)/.libraries: tests/kernels/requirements.txt $(VENV)/.test
	$(PIP) install --no-deps -r $<
	@touch $@

$(VENV)/.conformance: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[conformance]'
	@touch $@ $(VENV)/.test $(VENV)/.core

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install -e '.[dev]'
	@touch $@ $(VENV)/.test $(VENV)/.core
