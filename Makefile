PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: demo test check bench soak crash-matrix mutants wheel-check format clean

.venv: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "flightlog needs Python >= 3.11; try: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 2; }
	@echo "installing into .venv ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/flightlog demo

test: $(STAMP)
	FLIGHTLOG_TEST_CONTAINERS=$(CONTAINERS) $(BIN)/python -m pytest $(ARGS)

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMP)
	$(BIN)/flightlog bench $(ARGS)

soak: $(STAMP)
	$(BIN)/python -m pytest -m soak $(ARGS)

crash-matrix: $(STAMP)
	$(BIN)/python -m tests.matrix

mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(ARGS)

wheel-check: $(STAMP)
	@$(BIN)/python tests/wheel_check.py

clean:
	rm -rf .venv build dist
