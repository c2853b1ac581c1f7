# make demo | paper | check | test | docs | release | fuzz | soak | gpu | format: each sets up what it needs first,
# demo in .venv-light (no PyTorch), the others in .venv.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
LIGHT := .venv-light/bin
READY_LIGHT := .venv-light/.ready
READY_DEV := .venv/.ready-dev
# the fastest checks: layers, objectives, recorded values, labels, metrics, doctests
QUICK := tests/test_layers.py tests/test_project.py tests/test_objectives.py tests/test_decision.py tests/labels \
	tests/metrics tests/images/test_geometry.py tests/images/test_views.py tests/methods/test_ml_tta.py \
	tests/methods/test_tpt.py tests/methods/test_tda.py tests/methods/test_plugins.py

.PHONY: demo paper check lint types quick test docs release fuzz soak gpu format clean

demo: $(READY_LIGHT)
	@rm -rf demo && mkdir -p demo/sample-photos && cp examples/photos/*.jpg examples/photos/README.md demo/sample-photos
	$(LIGHT)/mltta tag demo/sample-photos --labels examples/labels.txt -o demo/index.html -o demo/tags.txt \
		--annotate demo/bars --where demo/heatmaps
	@cat demo/tags.txt
	@echo "Open demo/index.html in a browser: the photos with their labels and heat maps."

# one photo through ML-TTA; needs PyTorch
paper: $(READY)
	$(BIN)/python examples/paper.py

check: lint
	$(MAKE) -j 2 types quick

lint: $(READY_DEV)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell

types: $(READY_DEV)
	$(BIN)/mypy

quick: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(QUICK)

# two workers with one thread each: more threads than cores wait for each other, and the suite takes twice as long
test: lint types
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.light -n 2

docs: $(READY_DEV)
	$(BIN)/python -m docs.generate
	$(BIN)/python -m pytest -q tests/docs/test_links.py
	$(BIN)/zensical build --strict
	@echo "Open site/index.html (no server needed). Live preview: $(BIN)/zensical serve"

release: $(READY_DEV)
	$(BIN)/python -m tests.release

fuzz: $(READY_DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --minutes 5 --seed 0
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz.harness --minutes 5

soak: $(READY_DEV)
	$(BIN)/python -m pytest -m soak

gpu: $(READY_DEV)
	$(BIN)/python -m pytest -m gpu -rs

format: $(READY_DEV)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

$(READY_LIGHT) $(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "mltta needs Python 3.10 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade pip
	$(@D)/bin/python -m pip install --quiet -e "$(if $(findstring light,$@),.,.[torch])"
	@touch $@

$(READY_DEV): $(READY)
	$(BIN)/python -m pip install --quiet -e ".[dev]"
	@touch $(READY_DEV)

clean:
	rm -rf .venv .venv-light build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis demo paper.png
