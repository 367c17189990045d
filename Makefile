# aTLAS Studio. Two commands: `make demo` serves the app, `make test` runs everything that is checked.
#   make demo PORT=8000   another port
#   make test ARGS="-k predict"   some tests only

PYTHON ?= python3
VENV ?= .venv
PORT ?= 7860
ARGS ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CHROMIUM := $(shell command -v chromium || command -v chromium-browser)
AXE := node_modules/axe-core/axe.min.js

.PHONY: demo test check bench pictures clean

demo: $(VENV)/.app
	$(BIN)/python -m app --port $(PORT)

test: $(VENV)/.dev browser $(AXE)
	$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.app
	$(BIN)/atlas bench $(ARGS)

# The pictures in the README, taken from the running app; then write their sha256 into assets/README.md.
pictures: $(VENV)/.dev browser
	$(BIN)/python -m pytest tests/browser -k pictured
	cp artefacts/page-1280-light.png assets/figures/first-page.png
	sha256sum assets/figures/*.png

# The virtual environment, in two layers that are rebuilt only when their requirements change.
$(VENV)/.app: requirements.txt constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -r requirements.txt -c constraints.txt
	$(PIP) install --quiet --no-deps "pillow>=13,<14"
	$(PIP) install --quiet --no-deps --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.app requirements-dev.txt
	$(PIP) install --quiet -r requirements-dev.txt -c constraints.txt
	touch $@

# The browser tests drive a real Chromium; only root can install it.
.PHONY: browser
browser:
ifeq ($(CHROMIUM),)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y chromium >/dev/null; \
	else \
	  echo "The browser tests need Chromium. Install it (Debian: sudo apt-get install chromium), then: make test"; \
	  exit 1; \
	fi
endif

# axe-core checks the page for accessibility; without npm its test is skipped, and says so.
$(AXE):
	@if command -v npm >/dev/null; then npm install --silent --no-save --no-package-lock axe-core@4.14.0; \
	else echo "npm is not here: the accessibility test will be skipped."; fi

clean:
	rm -rf $(VENV) node_modules artefacts .mypy_cache .ruff_cache .pytest_cache .hypothesis
