# Two commands set everything up: `make demo` and `make test`. Both build the environment on first use.
# Needed: make and a Python of at least 3.11 with pip. `make PYTHON=/path/to/python …` chooses another one.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3 python; do \
	$$p -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { $$p -c 'import sys; print(sys.executable)'; break; }; done)
UV := .tools/bin/uv
export UV_PYTHON_DOWNLOADS := never
RUN := .venv/bin

# Small shapes compile often: keep what was compiled, for all checkouts of a user on such a processor, leave out LLVM's
# optimisations, one LAPACK thread for each test process. Python keeps what it compiled as well, for the processes that tests start.
KEPT := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/structgp/tests
PROGRAMS := $(KEPT)/$(shell { grep -m1 ^flags /proc/cpuinfo || uname -m; } 2>/dev/null | cksum | cut -d' ' -f1)
TEST_ENV := XLA_FLAGS=--xla_backend_optimization_level=0 JAX_COMPILATION_CACHE_DIR=$(PROGRAMS)/jax JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 \
	JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES=-1 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE=

# The rounding of processors without AVX-512: XLA's vectors and OpenBLAS's loops are theirs. Where a Zen 4 or 5 is told to be a Haswell,
# OpenBLAS 0.3.34 overruns its stack, unless it takes the second-level cache for a smaller one.
AVX2_ENV := $(TEST_ENV) XLA_FLAGS="--xla_backend_optimization_level=0 --xla_cpu_max_isa=AVX2" \
	JAX_COMPILATION_CACHE_DIR=$(PROGRAMS)/jax-avx2 OPENBLAS_CORETYPE=Haswell OPENBLAS_L2_SIZE=512
LAWS := tests/laws tests/linalg $(addprefix tests/models/test_additive.py::test_,splines_project_the_covariance the_bound_is_one \
	the_gradient_of_the_bound_is_its_slope) $(addprefix tests/models/test_changepoints.py::test_,learning_climbs_to_a_flat_place \
	equals_the_sum_over_all_segmentations)

.PHONY: demo test test-all check style types unit full laws-avx2 margins browser format bench docs release clean help

help:
	@echo "make demo    fit the carbon dioxide over Mauna Loa, forecast it, and write a report to demo/"
	@echo "make test    formatter, linter, types, tests and docstring examples"
	@echo "make test-all  the same, and the products of which make test has representatives (make full: these alone)"
	@echo "make laws-avx2  the numerical laws with the rounding of a processor without AVX-512, types and shapes checked at every call"
	@echo "make margins how close the laws come to their tolerances"
	@echo "make browser open reports in a headless Chromium (Qt's, 210 MB, fetched on first use) and look at reports of every kind"
	@echo "make format  format the code"
	@echo "make bench   time structgp beside its peers (installs them on first use)"
	@echo "make docs    build docs/_build/html, examples included; ARGS='-D plot_gallery=0' leaves them out"
	@echo "make release  build the wheel and the source archive, install the wheel into empty environments and use it there"
	@echo "make clean   remove what was built"

demo: .venv/.ready
	@$(RUN)/python -m structgp demo --out demo

# Types are checked on one core while tests begin on the other.
test: style
	@$(MAKE) --no-print-directory --jobs=2 types unit

test-all: test full

check: style types

style: .venv/.ready
	$(RUN)/ruff format --check src tests benchmarks study examples docs/*.py docs/tutorials
	$(RUN)/ruff check src tests benchmarks study examples docs/*.py docs/tutorials

types: .venv/.ready
	$(RUN)/mypy

unit: .venv/.ready
	$(TEST_ENV) $(RUN)/python -m pytest -n auto --dist worksteal

full: .venv/.ready
	$(TEST_ENV) $(RUN)/python -m pytest -n auto --dist worksteal -m full

laws-avx2: .venv/.ready
ifeq ($(shell uname -m),x86_64)
	STRUCTGP_SHAPES=1 $(AVX2_ENV) $(RUN)/python -m pytest -n auto --dist worksteal $(LAWS)
else
	@echo "This processor is no x86: its tests have nothing to do with AVX."
endif

margins: .venv/.ready
	PYTHONPATH=tests $(TEST_ENV) $(RUN)/python -m pytest -p margins $(LAWS)
	PYTHONPATH=tests $(AVX2_ENV) $(RUN)/python -m pytest -p margins $(LAWS)

browser: .venv/.ready
	@test -d .tools/browser || $(UV) pip install --quiet --python $(RUN)/python --target .tools/browser "PyQt6-WebEngine>=6.8" \
		|| echo "The browser could not be fetched: its tests are skipped."
	PYTHONPATH=.tools/browser $(TEST_ENV) $(RUN)/python -m pytest -rs tests/tables/test_report_browser.py

format: .venv/.ready
	$(RUN)/ruff check --fix src tests benchmarks study examples docs/*.py docs/tutorials
	$(RUN)/ruff format src tests benchmarks study examples docs/*.py docs/tutorials

bench: .venv-bench/.ready
	.venv-bench/bin/python -m benchmarks --json bench.json $(ARGS)

docs: .venv-docs/.ready
	JAX_PLATFORMS=cpu OPENBLAS_NUM_THREADS=1 .venv-docs/bin/python -m sphinx -W --keep-going -q docs docs/_build/html $(ARGS)
	@echo "open docs/_build/html/index.html"

release: .venv/.ready
	@rm -rf dist
	@$(UV) build --quiet --python $(RUN)/python --out-dir dist
	@$(RUN)/python tests/release/install.py dist

.venv/.ready: $(UV) pyproject.toml uv.lock
	$(UV) sync --locked --quiet --python "$(PYTHON)"
	@touch $@

.venv-bench/.ready: $(UV) pyproject.toml uv.lock
	UV_PROJECT_ENVIRONMENT=.venv-bench $(UV) sync --locked --quiet --extra bench --python "$(PYTHON)"
	@touch $@

.venv-docs/.ready: $(UV) pyproject.toml uv.lock
	UV_PROJECT_ENVIRONMENT=.venv-docs $(UV) sync --locked --quiet --extra docs --python "$(PYTHON)"
	@touch $@

$(UV):
	@test -n "$(PYTHON)" || { echo "structgp needs a Python of at least 3.11 with pip; none was found. Name one: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up with $(PYTHON) …"
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .tools "uv>=0.8"

clean:
	rm -rf .venv .venv-bench .venv-docs .tools .cache $(KEPT) demo dist docs/_build docs/_generated docs/gallery
