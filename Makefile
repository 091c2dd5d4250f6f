# Every target sets up what it needs in .venv, from nothing but a Python >= 3.11 (PYTHON=...).

PYTHON ?= python3
OTHER_TRITON ?= 3.6.0
OTHER_TORCH ?= 2.11.0
VENV := .venv
STAMP := $(VENV)/.installed
# Every core: one process for each, which takes the next test when it has none.
PYTEST := $(VENV)/bin/pytest -n auto --dist worksteal
INTERPRETED := TRITON_INTERPRET=1 ONEFOLD_KERNELS=triton
export OMP_NUM_THREADS ?= 1
# Tests start hundreds of processes, and each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test slow kernels other-triton other-torch kills gpu gpu-first gpu-tests gpu-bench gpu-steps gpu-tune check lint types format api stubs ops budget clean

help:
	@echo "make demo    train on MNIST with mixed parallelism"
	@echo "make test    run the tests, on every core (20 minutes on 2)"
	@echo "make slow    run the tests that take more than 10 seconds each (5 minutes)"
	@echo "make kernels compile every Triton kernel, check launches, and run all in the interpreter"
	@echo "make kills   kill ranks of a training at random moments, and compare (2 minutes)"
	@echo "make other-torch  run the tests with torch $(OTHER_TORCH), and with another Python: PYTHON=python3.12"
	@echo "make gpu     run the tests and the benchmark of kernels, on a machine with a GPU"
	@echo "make gpu-first, gpu-tests PART=1/4, gpu-bench GROUP=rows, gpu-steps MODEL=gpt2," \
	  "gpu-tune FAMILY=matmul: each within 8 minutes (MINUTES=...)"
	@echo "make check   lint, types, kernels, kills, slow and test, as CI does (38 minutes on 2 cores)"
	@echo "make setup, lint, types, format, api (rewrite tests/public_api.txt)," \
	  "stubs (rewrite what type checkers see), ops (rewrite docs/ops.md), budget (of the compiled kernels), clean"

setup: $(STAMP)

# One pip call resolves everything under the constraints, so nothing replaces the torch they name.
$(STAMP): pyproject.toml constraints.txt
	@version=$$($(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])') || version="not there"; \
	case $$version in \
	  "not there"|2.*|3.?|3.10) \
	    echo "onefold needs Python 3.11 or newer; PYTHON=$(PYTHON) is $$version." \
	      "Name another, such as: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
	    exit 1;; \
	esac
	$(PYTHON) -m venv $(VENV)
	@echo "Installing onefold and what it needs into $(VENV); torch is large, this takes minutes."
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[tests,examples]'
	@touch $@

demo: $(STAMP)
	$(VENV)/bin/python examples/mnist.py --strategy mixed

test: $(STAMP)
	$(PYTEST) -m "not slow"

# Tests of 10 seconds and more: they compile kernels, train models, or run other tests.
slow: $(STAMP)
	$(PYTEST) -m slow

# Triton is interpreted or compiled, as a process chooses when it starts: so, several of them.
kernels: $(STAMP)
	$(VENV)/bin/python -m onefold.kernels.aot
	$(VENV)/bin/python tests/driver_runs.py
	$(INTERPRETED) $(PYTEST) tests/triton
	$(INTERPRETED) $(PYTEST) tests/graph/test_fuse_chains.py

# Launches with another Triton than that of torch, which lies in an environment of its own.
OTHER := build/triton-$(OTHER_TRITON)
other-triton: $(OTHER)/.installed
	PYTHONPATH=build/package $(OTHER)/bin/python -m pytest -q tests/kernels/test_launcher_version.py
	PYTHONPATH=build/package $(OTHER)/bin/python -m pytest -q tests/kernels/test_cache_folder.py -k step
	PYTHONPATH=build/package $(OTHER)/bin/python tests/driver_runs.py --match "step of"

$(OTHER)/.installed: $(STAMP)
	$(VENV)/bin/python -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps \
	  triton==$(OTHER_TRITON)
	@mkdir -p build/package && ln -sfn ../.. build/package/onefold
	@rest=$$($(VENV)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	folder=$$($(OTHER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "$$rest" > "$$folder/rest.pth"
	@touch $@

# The tests with the oldest torch that is supported and the Python of PYTHON, for which CI has no time.
OLD := build/torch-$(OTHER_TORCH)-$(notdir $(PYTHON))
other-torch: $(OLD)/.installed
	$(OLD)/bin/pytest -n auto --dist worksteal -m "not slow"

$(OLD)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install --quiet --disable-pip-version-check \
	  torch==$(OTHER_TORCH) triton==$(OTHER_TRITON) --editable '.[tests,examples]'
	@touch $@

kills: $(STAMP)
	$(VENV)/bin/python benchmarks/kill_training.py --short

# On a machine with a GPU, with the torch, triton and pytest that PYTHON has there. Each command ends
# after MINUTES, leaves what it found in RESULTS, and goes on from there; see docs/kernels.md.
MINUTES ?= 8
WORKERS ?= 8
RESULTS ?= build/gpu
PART ?= 1/1
ON_GPU = mkdir -p build/package && ln -sfn ../.. build/package/onefold && \
  PYTHONPATH="$(CURDIR)/build/package$${PYTHONPATH:+:$$PYTHONPATH}" $(PYTHON)
UNTIL = --minutes $(MINUTES) --results $(RESULTS)

gpu-first:
	$(ON_GPU) tests/gpu_first.py $(UNTIL) $(ARGS)

gpu-tests:
	$(ON_GPU) tests/gpu_tests.py $(UNTIL) --part $(PART) --workers $(WORKERS) $(ARGS)

gpu-bench:
	$(ON_GPU) benchmarks/kernels.py $(UNTIL) $(if $(GROUP),--group $(GROUP)) $(ARGS)

gpu-steps:
	$(ON_GPU) benchmarks/whole_steps.py $(UNTIL) $(if $(MODEL),--model $(MODEL)) $(ARGS)

gpu-tune:
	$(ON_GPU) -m onefold.kernels.tune $(FAMILY) --minutes $(MINUTES) --processes $(WORKERS) \
	  --rows $(RESULTS)/tune.jsonl $(ARGS)

gpu:
	@status=0; for target in gpu-tests gpu-bench; do \
	  $(MAKE) $$target MINUTES=600 || status=$$?; \
	done; exit $$status

check: lint types kernels other-triton kills slow test

lint: $(STAMP)
	$(VENV)/bin/ruff check
	$(VENV)/bin/ruff format --check

types: $(STAMP)
	@mkdir -p build/typecheck && ln -sfn ../.. build/typecheck/onefold
	cd build/typecheck && ../../$(VENV)/bin/mypy --config-file ../../pyproject.toml

format: $(STAMP)
	$(VENV)/bin/ruff check --fix
	$(VENV)/bin/ruff format

api: $(STAMP)
	$(VENV)/bin/python -c 'import onefold; print(*sorted(onefold.__all__), sep="\n")' > tests/public_api.txt

stubs: $(STAMP)
	$(VENV)/bin/python tests/stubs.py

ops: $(STAMP)
	$(VENV)/bin/python tests/ops_page.py

budget: $(STAMP)
	$(VENV)/bin/python -m onefold.kernels.aot --write

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
