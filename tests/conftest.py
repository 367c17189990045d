"""What several test folders share: the bundled engine, a browser, and the development data if it is there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from filelock import FileLock
from jaxtyping import install_import_hook

import tests.shapes  # noqa: F401 - named by the hook below

# Some virtual machines announce AMX and kill the process that uses it: matrix products in bfloat16 do
# without. Torch reads this at its first product.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

# Shapes in the signatures of these packages are checked at every call while the tests run.
install_import_hook(
    [f"atlas_engine.{name}" for name in ("adapt", "compose", "heads", "objectives")],
    "tests.shapes.check_shapes",
)

from atlas_engine.engine import Atlas  # noqa: E402
from atlas_engine.engine import open as open_atlas  # noqa: E402
from tests.chromium import find_chromium, open_chromium  # noqa: E402
from tests.drawn import ROOT  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes the user's cache."""
    before = os.environ.get("ATLAS_CACHE")
    os.environ["ATLAS_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["ATLAS_CACHE"]
    else:
        os.environ["ATLAS_CACHE"] = before


@pytest.fixture(scope="session")
def engine() -> Iterator[Atlas]:
    """The bundled model, opened once, with nothing kept on disk."""
    with open_atlas(device="cpu", cache=False) as opened:
        yield opened


@pytest.fixture(scope="session")
def examples() -> Path:
    return ROOT / "assets" / "examples"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of development data sets; tests that want it are skipped where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the development data sets are not on this machine")
    return folder


@pytest.fixture(scope="module")
def chromium():
    """A browser for one module; its event loop would stand in the way of tests that have one of their own."""
    found = find_chromium()
    if found is None:
        pytest.skip("Chromium is not installed")
    with open_chromium(found) as browser:
        yield browser


@pytest.fixture(scope="module")
def ray_turn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray at a time, whatever worker tests it: two that start together may take longer than Ray waits."""
    folder = tmp_path_factory.getbasetemp()
    shared = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    with FileLock(shared / "ray.lock"):
        yield
