"""The import rule, the one door per outside library, and the public names: read off the code itself."""

from __future__ import annotations

import ast
import functools
import subprocess
import sys

import pytest

import atlas_engine
from tests.drawn import ROOT

BASE = {
    "errors",
    "config",
    "runtime",
    "cache",
    "cluster",
    "files",
    "class_names",
    "entropies",
    "calibration",
    "upload",
    "display",
}
TENSORS = {"data", "clip", "bank", "compose", "objectives", "heads"}
MAY_IMPORT: dict[str, set[str]] = {  # what a part of the engine may import besides itself and the base
    "data": set(),
    "clip": set(),
    "bank": set(),
    "compose": {"bank"},
    "objectives": set(),
    "heads": set(),
    "predictions": set(),
    "predictions_file": {"predictions"},
    "recipe": {"bank", "clip", "compose", "heads"},
    "sharing": {"bank", "clip", "recipe"},
    "result": {"compose", "predictions", "recipe", "sharing"},
    "exporting": {"clip", "data", "recipe"},
    "adapt": TENSORS | {"predictions", "recipe", "result"},
    "engine": TENSORS | {"predictions", "recipe", "result", "adapt", "exporting"},
    "library": TENSORS | {"engine"},
    "training": TENSORS | {"engine"},
    "executors": set(),
    "jobs": TENSORS | {"engine", "executors", "library", "training"},
    "estimator": TENSORS | {"engine", "adapt", "result"},
    "views": {"compose", "predictions", "recipe", "result"},
}
MAY_IMPORT["cli"] = set(MAY_IMPORT)
DOORS = {  # outside library → where alone it may be imported
    "open_clip": ("atlas_engine/clip/", "studies/bundled_model/"),
    "timm": ("atlas_engine/clip/", "studies/bundled_model/"),
    "transformers": ("atlas_engine/clip/", "studies/bundled_model/"),
    "gradio": ("app/",),
    "PIL": ("atlas_engine/data/decode.py", "assets/", "studies/load_test/hostile_inputs.py"),
    "diskcache": ("atlas_engine/cache.py",),
    "numba": ("atlas_engine/bank/kernels/",),
    "llvmlite": ("atlas_engine/bank/kernels/",),
    "triton": ("atlas_engine/bank/kernels/",),
    "onnx": ("atlas_engine/exporting/", "studies/bundled_model/", "studies/clip_tower.py"),
    "datasets": ("atlas_engine/data/hub_dataset.py",),
    "huggingface_hub": ("atlas_engine/clip/", "atlas_engine/upload.py"),
    "ray": ("atlas_engine/executors/on_ray.py", "app/replicas/application.py"),
    "sklearn": ("atlas_engine/estimator.py",),
    "fsspec": ("app/replicas/results.py",),
}


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


@functools.cache
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
    return frozenset(found)


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


USES_THE_APP = ("studies/load_test/",)  # it visits the page as people do, with the page's own limits


@pytest.mark.parametrize("folder", ["atlas_engine", "app", "studies"])
def test_nothing_imports_the_studies_or_the_app_but_what_tests_the_page_under_load(folder):
    for path in sources(folder):
        visits = str(path.relative_to(ROOT)).startswith(USES_THE_APP)
        forbidden = {"studies", "app"} - {folder} - ({"app"} if visits else set())
        assert not {module.split(".")[0] for module in imports(path)} & forbidden, path


@pytest.mark.parametrize("library", DOORS)
def test_an_outside_library_has_one_door(library):
    strays = [
        str(path.relative_to(ROOT))
        for path in sources("atlas_engine", "app", "studies")
        if any(module.split(".")[0] == library for module in imports(path))
        and not str(path.relative_to(ROOT)).startswith(DOORS[library])
    ]
    assert strays == []


def test_the_app_uses_public_names_and_views_only():
    allowed = ("atlas_engine", "atlas_engine.cluster", "atlas_engine.views", "atlas_engine.errors")
    commands = ("atlas_engine.cli.main", "atlas_engine.cli.options", "atlas_engine.cli.output")
    for path in sources("app"):
        adds_commands = path.name in ("command.py", "commands.py")
        for module in imports(path):
            if adds_commands and module in commands:
                continue
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
    for path in sources("atlas_engine", "app", "studies"):
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path


def test_a_public_class_name_is_used_once_in_the_repository():
    homes: dict[str, list[str]] = {}
    for path in sources("atlas_engine", "app", "studies"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
