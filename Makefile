# aTLAS Studio. Two commands: `make demo` serves the app, `make test` runs everything that is checked.
#   make demo PORT=8000   another port
#   make test ARGS="-k predict"   some tests only
#   make test WORKERS=0           in one process, for a debugger

PYTHON ?= python3
VENV ?= .venv
PORT ?= 7860
ARGS ?=
WORKERS ?= 2

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
CHROMIUM := $(shell command -v chromium || command -v chromium-browser)
NPM := node_modules/onnxruntime-web/package.json

.PHONY: demo test check bench attack pictures lock sbom audit clean

demo: $(VENV)/.app
	$(BIN)/python -m app --port $(PORT)

# A file's tests run one after another in one of the workers, each of which computes in one thread and needs up to
# 3 GB, with a server of its own besides.
test: $(VENV)/.dev browser $(NPM)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.app
	$(BIN)/atlas bench $(ARGS)

# Attacks on a server of its own on loopback, about ten minutes; its module's help tells of the long form.
attack: $(VENV)/.dev
	$(BIN)/python -m studies.load_test.attack $(ARGS)

# The pictures in the README, taken from the running app; then write their sha256 into assets/README.md.
pictures: $(VENV)/.dev browser
	$(BIN)/python -m tests.browser.film assets/figures
	sha256sum assets/figures/*.png

# The virtual environment, in two layers that are rebuilt only when their requirements change. Python 3.11 installs
# from the locks, where every wheel has its sha256 (torch alone has none, see SECURITY.md); `make demo LOCK=` and
# other versions of Python install the same versions without hashes.
LOCK ?= $(shell $(PYTHON) -c 'import sys; print("requirements.lock" if sys.version_info[:2] == (3, 11) else "")')
TORCH := $(shell grep '^torch==' requirements.txt)

$(VENV)/.app: requirements.txt requirements.lock constraints.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
ifneq ($(LOCK),)
	$(PIP) install --quiet --no-deps -r $(LOCK)
	$(PIP) install --quiet $(TORCH) -c constraints.txt
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
else
	$(PIP) install --quiet -r requirements.txt -c constraints.txt
	$(PIP) install --quiet --no-deps "pillow>=13,<14"
	$(PIP) install --quiet --no-deps --editable .
endif
	touch $@

$(VENV)/.dev: $(VENV)/.app requirements-dev.txt requirements-dev.lock
ifneq ($(LOCK),)
	$(PIP) install --quiet --no-deps -r requirements-dev.lock
else
	$(PIP) install --quiet -r requirements-dev.txt -c constraints.txt
endif
	touch $@

# What is installed, and whether it has known holes. diskcache's (CVE-2025-69872) is closed by our own StrictDisk.
lock: $(VENV)/.dev
	$(BIN)/python .ci/lock.py

sbom: $(VENV)/.app
	$(BIN)/python .ci/sbom.py > sbom.json

audit:
	test -x $(VENV)-audit/bin/pip-audit || ($(PYTHON) -m venv $(VENV)-audit && \
	  $(VENV)-audit/bin/python -m pip install --quiet pip-audit==2.10.1)
	$(VENV)-audit/bin/pip-audit --disable-pip --require-hashes -r requirements.lock --ignore-vuln CVE-2025-69872

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

# axe-core checks the page for accessibility, and onnxruntime-web runs exported pages; without npm their tests
# are skipped, and say so.
$(NPM):
	@if command -v npm >/dev/null; then \
	  npm install --silent --no-save --no-package-lock axe-core@4.14.0 onnxruntime-web@1.30.0; \
	else echo "npm is not here: the tests of accessibility and of exported pages will be skipped."; fi

clean:
	rm -rf $(VENV) $(VENV)-audit node_modules artefacts .mypy_cache .ruff_cache .pytest_cache .hypothesis
