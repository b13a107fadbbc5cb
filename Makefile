# Only python3 (3.10 or newer) and make are needed. A C++ compiler makes the Laplace kernels fast; without one the
# torch path serves, and set-up says so. Everything is installed into .venv, nothing outside this folder.
PYTHON ?= python3
SEEDS ?= 1
VENV := .venv
BIN := $(VENV)/bin
INSTALL := REMIX_NO_NATIVE=1 $(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation -c constraints.txt
PYTEST := $(BIN)/python -m pytest -q -rfEs -n auto --maxprocesses=8
KERNELS := src/remix/laplace/native
LOG := $(VENV)/setup.log
# What a command says goes to the log; if it fails, so does its end to the terminal.
QUIET = >>$(LOG) 2>&1 || { tail -n 20 $(LOG); echo "set-up failed; all of it is in $(LOG)"; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help setup demo check test bench lint format docs clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(VENV)/.native  ## virtual environment in .venv, pinned packages, native kernels; then what is in use
	@$(BIN)/remix doctor

demo: $(VENV)/.native  ## learn digits task after task, by fine-tuning and with REMIX, and compare; SEEDS=3 for three seeds
	@$(BIN)/remix sweep digits --set method=finetune,remix --seeds 0-$$(($(SEEDS) - 1)) --out demo-output
	@$(BIN)/remix report demo-output --out demo-output/report.html
	@echo
	@echo "Open $(CURDIR)/demo-output/report.html in a browser. Then try"
	@echo "  ./remix dream demo-output/digits-remix-seed0/model.remix --classes 3,7 --count 8 --out dreams.png"
	@echo "  ./remix run digits         lda, an exact head on the network of the first task; ./remix methods lists others"
	@echo "  make demo SEEDS=3          the same with three seeds"

check: lint $(VENV)/.test  ## ruff, mypy and the fast tests: two minutes on two cores
	$(PYTEST) -m 'not slow' $(ARGS)

test: $(VENV)/.test $(VENV)/.native  ## all tests, slow ones last; with REMIX_DATA=folder also those that need real data
	$(PYTEST) --durations=20 --durations-min=1 $(ARGS)

bench: $(VENV)/.bench $(VENV)/.native  ## speed and memory against other libraries
	$(BIN)/python -m benchmarks $(ARGS)

lint: $(VENV)/.lint $(VENV)/.native  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.lint $(VENV)/.native  ## let ruff lay out the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(VENV)/.docs $(VENV)/.native  ## the documentation as a site in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

clean:  ## remove what was built here; .venv stays (rm -rf .venv to start over)
	rm -rf build dist site demo-output src/*.egg-info src/remix/laplace/_native* $(VENV)/.native
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests examples benchmarks -name __pycache__ -type d -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("REMIX needs Python 3.10 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 setup")'
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make a virtual environment. On Debian and Ubuntu: apt install python3-venv"; exit 1; }
	@echo "setting up in $(VENV): torch and the rest, some minutes; log in $(LOG)"
	@$(INSTALL) setuptools $(QUIET)
	@$(INSTALL) -e . $(QUIET)
	@touch $@

$(VENV)/.test $(VENV)/.lint $(VENV)/.bench $(VENV)/.docs: $(VENV)/.installed
	@echo "installing what make $(subst .,,$(notdir $@)) needs; log in $(LOG)"
	@$(INSTALL) -e '.[$(subst .,,$(notdir $@))]' $(QUIET)
	@touch $@

# The stamp is left only when the library is there, so that a compiler installed later is found by the next make.
$(VENV)/.native: $(VENV)/.installed setup.py $(wildcard $(KERNELS)/*)
	@rm -rf build src/remix/laplace/_native*
	@echo "building the native kernels (half a minute)"
	@$(BIN)/python setup.py -q build_ext --inplace >>$(LOG) 2>&1 || true
	@if ls src/remix/laplace/_native* >/dev/null 2>&1; then touch $@; else \
	  echo "NO NATIVE KERNELS: they could not be built (see $(LOG)). REMIX works without them, slower."; \
	  echo "To have them, install a C++17 compiler (Debian, Ubuntu: apt install g++; macOS: xcode-select --install) and run make again."; fi
