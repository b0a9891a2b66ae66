# make demo   install into .venv and run the main job      make test   the whole test suite
# make check  lint, format, types                          make bench  speed, never a test: BENCH="--only 10k"
# make fuzz   damaged files by the thousand, for FUZZ seconds or up to CASES a reader; what fails
#             is kept in out/fuzz, and the next one goes on behind the last case
# make mutants  one change at a time in memory/ and engine/: MUTANTS of them, and who notices
# make soak   ten million requests and thousands of random scenarios: no drift, no leak
# make lowest the tests of the simulator under the lowest versions that pyproject.toml declares
# make gpu    all that a session with a GPU is for, in out/gpu
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check install compile bench fuzz mutants soak lowest gpu clean

demo: .venv/.kvsim
	$(BIN)/kvsim run chat --out out/demo
	@echo "open out/demo/report.html"

install: .venv/.kvsim

# The sources first; then, where they were compiled, what is compiled.
test: .venv/.tests
	KVSIM_COMPILED=0 $(BIN)/python -m pytest -n 2 $(PYTEST)
	if $(BIN)/kvsim --version | grep -q compiled; then $(BIN)/python -m pytest -n 2 $(COMPILED); \
	else echo "nothing is compiled, or its sources were edited since: make compile"; fi

COMPILED ?= tests/test_compiled.py tests/engine tests/memory tests/contracts tests/validate/schedule

# Again after an edit; edited sources run as they are.
compile: .venv/.tests
	KVSIM_COMPILE=1 $(BIN)/python setup.py --quiet build_ext --inplace

check: .venv/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

BENCH ?=
bench: .venv/.tests
	$(BIN)/python benchmarks/bench.py $(BENCH)

FUZZ ?= 300
fuzz: .venv/.tests
	PYTHONPATH=tests $(BIN)/python -m support.fuzzing.campaign --seconds $(FUZZ) --keep out/fuzz $(if $(CASES),--up-to $(CASES))

MUTANTS ?= 30
mutants: .venv/.tests
	PYTHONPATH=tests $(BIN)/python -m support.mutants --sample $(MUTANTS)

SOAK ?= 10000000
soak: .venv/.tests
	PYTHONPATH=tests $(BIN)/python -m support.soak --requests $(SOAK)

LOWEST ?= tests/contracts tests/plumbing tests/workload tests/report tests/results tests/memory \
  tests/model tests/device tests/capacity tests/step_time tests/readers tests/interchange tests/commands/test_cli.py
lowest:
	$(PYTHON) -m venv out/lowest
	out/lowest/bin/pip install --quiet --disable-pip-version-check `$(PYTHON) tests/support/lowest.py test sweep interchange`
	PYTHONPATH=. out/lowest/bin/python -m pytest -q -p no:cacheprovider $(LOWEST)

# On a machine with an NVIDIA GPU, by the python3 that has torch for it; within 40 minutes, and on
# from there if run again. What more it needs and does not find, it skips and says.
GPU_PYTHON ?= $(PYTHON)
gpu:
	$(GPU_PYTHON) -m evidence.session --out out/gpu $(GPU)

clean:
	rm -rf .venv out build dist *.egg-info kvsim/compiled.sha256
	find . -name '*.so' -delete

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvsim needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	$(PYTHON) -m venv .venv

# The package is installed in place, and the rooms that run hot are compiled, a minute or two where
# there is a C compiler (KVSIM_COMPILE=0 leaves it out). Edits take effect at once all the same.
.venv/.kvsim: .venv/bin/python pyproject.toml setup.py kvsim/compiled.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	$(BIN)/python -m compileall -q kvsim # as pip does for what it does not install in place
	@touch $@

# torch comes first and pinned: a looser request may pull gigabytes of CUDA packages.
.venv/.tests: .venv/.kvsim
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	KVSIM_COMPILE=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,check,sweep,dask,interchange]'
	@touch $@
