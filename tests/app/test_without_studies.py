"""The engine, the command line and the page work where the `studies` folder is absent, as on a Space."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from gradio_client import Client, handle_file

from app.examples import ASK_EXAMPLES
from app.handlers.ask import as_json, ask
from tests.app.absent import without_studies
from tests.serving import ROOT, start_server, stop_server

OUTSIDE = (".git", "node_modules", "artefacts", "studies", "tests", "__pycache__", ".*_cache", ".venv")
EVERY_MODULE = """
import importlib, pkgutil
from importlib.util import find_spec
without = () if find_spec("ray") else ("app.replicas.application",)  # the one module that needs the extra
import app, atlas_engine
for package in (atlas_engine, app):
    assert package.__path__[0].startswith({root!r}), package.__path__
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__") and module.name not in without:
            importlib.import_module(module.name)
try:
    import studies
except ModuleNotFoundError:
    print("studies is absent")
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The repository without its `studies`, and the folder that keeps Python from finding them elsewhere."""
    folder = tmp_path_factory.mktemp("lean")
    shutil.copytree(ROOT, folder / "repository", ignore=shutil.ignore_patterns(*OUTSIDE))
    return folder / "repository", without_studies(folder / "guard")


def run(copy, *arguments):
    repository, guard = copy
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=repository,
        env=os.environ | {"PYTHONPATH": str(guard)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_module_of_the_engine_and_the_app_is_imported_without_studies(copy):
    done = run(copy, "-c", EVERY_MODULE.format(root=str(copy[0])))
    assert done.returncode == 0, done.stderr
    assert "studies is absent" in done.stdout


def test_the_command_line_tells_its_commands_without_studies(copy):
    done = run(copy, "-m", "atlas_engine.cli", "--help")
    assert done.returncode == 0, done.stderr
    assert {"predict", "adapt", "bank"} <= set(done.stdout.split())


@pytest.mark.slow
def test_the_page_answers_without_studies(copy, engine, tmp_path, monkeypatch):
    repository, guard = copy
    monkeypatch.setattr("studies.load_test.server.ROOT", repository)
    server = start_server(tmp_path, PYTHONPATH=str(guard))
    try:
        example = ASK_EXAMPLES[0]
        answered = Client(server.address, verbose=False).predict(
            images=[handle_file(path) for path in example.paths],
            classes=example.class_text,
            api_name="/predict",
        )
    finally:
        stop_server(server)
    *_, here = ask(engine, example.paths, example.class_text)
    assert [row["label"] for row in answered["rows"]] == [row["label"] for row in as_json(here)["rows"]]
