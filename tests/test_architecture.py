"""The import rule, the one door per outside library, and the public names: read off the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

import atlas_engine
from tests.drawn import ROOT

BASE = {"errors", "config", "runtime", "cache", "files", "modules", "shares", "ending", "entropies", "names"}
MAY_IMPORT = {  # what a part of the engine may import besides itself and the base
    "data": set(),
    "clip": set(),
    "bank": set(),
    "compose": {"bank"},
    "objectives": set(),
    "heads": set(),
    "prediction": set(),
    "recipe": {"bank", "compose"},
    "result": {"bank", "compose", "prediction", "recipe"},
    "adapt": {"data", "bank", "compose", "objectives", "heads", "prediction", "recipe", "result"},
    "views": {"compose", "prediction", "recipe", "result"},
    "atlas": {
        "adapt",
        "bank",
        "clip",
        "compose",
        "data",
        "heads",
        "objectives",
        "prediction",
        "recipe",
        "result",
    },
}
MAY_IMPORT["adapting"] = MAY_IMPORT["adapt"] | {"adapt", "clip", "moving"}
MAY_IMPORT["arithmetic"] = MAY_IMPORT["adapting"]
MAY_IMPORT["moving"] = {"bank", "clip", "compose"}
MAY_IMPORT["test_timing"] = MAY_IMPORT["adapting"]
MAY_IMPORT["answering"] = {"clip", "heads", "recipe", "bank", "compose"}
MAY_IMPORT["streaming"] = MAY_IMPORT["test_timing"] | {"test_timing"}
MAY_IMPORT["atlas"] |= {"adapting", "answering", "arithmetic", "moving", "streaming", "test_timing"}
MAY_IMPORT["evaluate"] = MAY_IMPORT["atlas"] | {"atlas"}
MAY_IMPORT["forgetting"] = MAY_IMPORT["evaluate"]
MAY_IMPORT["training"] = MAY_IMPORT["evaluate"]
MAY_IMPORT["importing"] = MAY_IMPORT["evaluate"]
MAY_IMPORT["fetching"] = MAY_IMPORT["importing"] | {"importing"}
MAY_IMPORT["bench"] = MAY_IMPORT["evaluate"] | {"evaluate", "importing", "training", "views"}
MAY_IMPORT["study"] = MAY_IMPORT["bench"] | {"bench"}
MAY_IMPORT["cli"] = MAY_IMPORT["study"] | {"study"}
DOORS = {  # outside library → where alone it may be imported
    "open_clip": ("atlas_engine/clip/",),
    "timm": ("atlas_engine/clip/",),
    "transformers": ("atlas_engine/clip/",),
    "gradio": ("app/",),
    "PIL": ("atlas_engine/data/images.py", "assets/"),
    "diskcache": ("atlas_engine/cache.py",),
    "numba": ("atlas_engine/bank/loops.py",),
    "llvmlite": ("atlas_engine/bank/loops.py",),
}


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def imports(path):
    """Every module that a file imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            if node.module == "atlas_engine":
                found |= {f"atlas_engine.{alias.name}" for alias in node.names}
    return found


def part_of(module):
    return module.split(".")[1].removesuffix(".py") if module.startswith("atlas_engine.") else None


@pytest.mark.parametrize("path", sources("atlas_engine"), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_part_imports_only_what_lies_below_it(path):
    inside = path.relative_to(ROOT / "atlas_engine").parts
    part = inside[0].removesuffix(".py")
    if part == "__init__":
        return
    used = {part_of(module) for module in imports(path)} - {None, part} - BASE
    allowed = set() if part in BASE else MAY_IMPORT[part]
    assert used <= allowed, f"{path.name} imports {sorted(used - allowed)}"
    assert not any(module.split(".")[0] == "app" for module in imports(path))


@pytest.mark.parametrize("library", DOORS)
def test_an_outside_library_has_one_door(library):
    strays = [
        str(path.relative_to(ROOT))
        for path in sources("atlas_engine", "app")
        if any(module.split(".")[0] == library for module in imports(path))
        and not str(path.relative_to(ROOT)).startswith(DOORS[library])
    ]
    assert strays == []


def test_the_app_uses_public_names_and_views_only():
    allowed = ("atlas_engine", "atlas_engine.views", "atlas_engine.errors")
    for path in sources("app"):
        for module in imports(path):
            public = module.removeprefix("atlas_engine.") in atlas_engine.__all__
            if module.startswith("atlas_engine") and not public:
                assert module in allowed or module.startswith("atlas_engine.views."), f"{path}: {module}"


def test_public_names_are_sorted_and_all_there():
    assert sorted(atlas_engine.__all__) == atlas_engine.__all__
    assert sorted(atlas_engine._HOMES) == atlas_engine.__all__
    for name in atlas_engine.__all__:
        assert getattr(atlas_engine, name) is not None


def test_an_unknown_public_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'oepn'"):
        _ = atlas_engine.oepn


@pytest.mark.parametrize(
    "module", ["atlas_engine", "atlas_engine.errors", "atlas_engine.cli", "atlas_engine.data"]
)
def test_light_modules_do_not_load_torch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_every_module_says_what_it_is():
    for path in sources("atlas_engine", "app"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_no_file_is_longer_than_one_sitting():
    for path in sources("atlas_engine", "app"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 400, path
