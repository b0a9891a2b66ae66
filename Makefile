# make demo   install into .venv and run the main job      make test   the whole test suite, on the sources
# make installed  the whole test suite on the compiled wheel, installed away from here (by make wheel)
# make compile    what runs hot, compiled in place: long simulations in half the time
# make quick  in two minutes: lint and tests of what git says was touched, and a few that hold all
# make docs   generated pages (docs/scenario.md, docs/commands.md, a part of docs/limits.md) and the site in out/site
# make check  lint, format, types                          make bench  speed, never a test: BENCH="--only 10k"
# make fuzz   damaged files and scenarios of damaged structure by the thousand, for FUZZ seconds or
#             up to CASES a reader; what fails is kept in out/fuzz, and the next one goes on there
# make mutants  one change at a time in memory/, engine/, results/, fleet/: MUTANTS, and who notices
# make soak   ten million requests and thousands of random scenarios: no drift, no leak; and whole
#             the products of settings that the suite tests pairwise
# make lowest the tests of the simulator under the lowest versions that pyproject.toml declares
# make gpu    all that a session with a GPU is for, in out/gpu
PYTHON ?= python3
BIN := .venv/bin
# Tests start thousands of processes: what one of them has imported, the next need not compile.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test installed wheel quick docs screens check install compile bench fuzz mutants soak lowest gpu clean

demo: .venv/.demo
	$(BIN)/kvsim run chat --out out/demo
	@echo "open out/demo/report.html"
	@echo "make compile: some two minutes of a C compiler, once, and long simulations take about half the time"

install: .venv/.demo

# The whole suite against the sources, by one process more than there are processors, since tests of
# browsers and killed processes wait. A process without tests takes over those of another.
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PYTEST_ALL = -n $(WORKERS) --dist worksteal $(PYTEST)
test: .venv/.tests
	KVSIM_COMPILED=0 $(BIN)/python -m pytest $(PYTEST_ALL)

# The whole suite against the compiled wheel, in an environment that has it alone and finds what it
# needs in .venv, beside a copy of the checkout that has no kvsim but the installed one.
AWAY := out/installed
installed: .venv/.tests wheel
	for site in $(AWAY)/venv/lib/python*/site-packages; do ls -d $(CURDIR)/.venv/lib/python*/site-packages > $$site/dependencies.pth; done
	cd $(AWAY)/checkout && KVSIM_COMPILED=1 ../venv/bin/python -P -m pytest $(PYTEST_ALL)

# That environment: it needs no tests of .venv, so that `make --jobs 2` makes both at once.
wheel: .venv/.demo
	rm -rf $(AWAY) && mkdir -p $(AWAY)/checkout
	git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create --file - | tar --extract --directory $(AWAY)/checkout
	KVSIM_COMPILE=1 $(OUTER_PIP) wheel --quiet --no-deps --wheel-dir $(AWAY) $(AWAY)/checkout
	$(PYTHON) -m venv --without-pip $(AWAY)/venv
	$(OUTER_PIP) --python $(AWAY)/venv/bin/python install --quiet --no-deps $(AWAY)/kvsim-*.whl
	rm -r $(AWAY)/checkout/kvsim $(AWAY)/checkout/build
	cd $(AWAY)/checkout && ln -s ../venv/lib/python*/site-packages/kvsim ../venv/lib/python*/site-packages/*__mypyc*.so .

# Some two minutes on two processors, again after an edit; edited sources run as they are.
# Interrupted it leaves the sources, which run as before.
compile: .venv/.demo
	$(PIP_INSTALL) 'setuptools>=77' 'mypy>=2.0'
	KVSIM_COMPILE=1 $(BIN)/python setup.py --quiet build_ext --inplace

# PYTEST="-k name" and the like as above.
quick: .venv/.tests
	KVSIM_COMPILED=0 PYTHONPATH=tests $(BIN)/python -m support.quick $(PYTEST)

check: .venv/.tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=tests $(BIN)/python -m support.readability

# Pictures of each kind of page at two widths, light and dark, for whoever changes one to look at.
screens: .venv/.tests
	mkdir -p out/screens
	KVSIM_SCREENS=out/screens $(BIN)/python -m pytest -q tests/report/test_screens.py

docs: .venv/.tests
	$(BIN)/kvsim options --markdown > docs/scenario.md
	PYTHONPATH=tests $(BIN)/python -m support.commands_page > docs/commands.md
	PYTHONPATH=tests $(BIN)/python -m support.limits_page
	$(BIN)/python -m sphinx -q -W --keep-going -c docs . out/site
	@echo "open out/site/index.html"

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
	KVSIM_WHOLE=1 $(BIN)/python -m pytest -n $(WORKERS) tests/contracts tests/memory tests/engine tests/test_compiled.py tests/backend/transformer tests/evidence/paper tests/test_docs.py tests/whatif/doctor/test_servers.py tests/whatif/capacity

LOWEST ?= tests/contracts tests/plumbing tests/workload tests/report tests/results tests/memory \
  tests/model tests/device tests/capacity tests/step_time tests/readers tests/interchange tests/commands/test_cli.py
lowest:
	$(PYTHON) -m venv out/lowest
	out/lowest/bin/pip install --quiet --disable-pip-version-check `$(PYTHON) tests/support/lowest.py report fit traces test sweep interchange`
	PYTHONPATH=. out/lowest/bin/python -m pytest -q -p no:cacheprovider $(LOWEST)

# On a machine with an NVIDIA GPU, by the python3 that has torch for it; within 40 minutes, and on
# from there if run again. What more it needs and does not find, it skips and says.
GPU_PYTHON ?= $(PYTHON)
gpu:
	$(GPU_PYTHON) -m evidence.session --out out/gpu $(GPU)

clean:
	rm -rf .venv out build dist *.egg-info kvsim/compiled.sha256
	find . -name '*.so' -delete

# pip of the outer Python installs into the environment, where it can: an environment with a pip of
# its own takes ten seconds longer.
OUTER_PIP = $$($(PYTHON) -m pip --python $(PYTHON) --version > /dev/null 2>&1 && echo $(PYTHON) -m pip || echo $(BIN)/python -m pip)
PIP = $$(test -e $(BIN)/pip && echo $(BIN)/python -m pip || echo $(PYTHON) -m pip --python $(BIN)/python)
PIP_INSTALL = $(PIP) install --quiet --disable-pip-version-check

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "kvsim needs Python 3.11 or newer, this is " + sys.version.split()[0])'
	if $(PYTHON) -m pip --python $(PYTHON) --version > /dev/null 2>&1; \
	then $(PYTHON) -m venv --without-pip .venv; else $(PYTHON) -m venv .venv; fi

# The package is installed in place, and edits take effect at once. Bytecode is written where a
# module is first imported, not for everything that is installed.
.venv/.demo: .venv/bin/python pyproject.toml setup.py
	$(PIP_INSTALL) --no-compile --no-warn-conflicts --editable '.[report]'
	@touch $@

EXTRAS := report,fit,traces,test,check,docs,sweep,dask,interchange
# torch comes first and pinned: a looser request may pull gigabytes of CUDA packages.
.venv/.tests: .venv/.demo
	$(PIP_INSTALL) torch==2.13.0
	$(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	@touch $@
