"""Starting the app: the model that was chosen, or the bundled one with the reason in sight."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

import atlas_engine as atlas
from app import text
from app.__main__ import main
from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES, FOLDER
from app.session import open_engine
from tests.serving import PATIENCE, ROOT, start_server, stop_server


def test_the_page_comes_with_its_settings_safe(server):
    config = httpx.get(f"{server.address}/config", timeout=60).json()
    assert config["title"] == text.page.TITLE
    assert config["analytics_enabled"] is False
    assert config["show_error"] is False
    assert text.page.BANNER_HEADING not in str(config["components"])


@pytest.mark.slow
def test_a_model_that_the_hub_does_not_give_leaves_the_bundled_one_under_a_banner(tmp_path):
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    server = start_server(tmp_path, ATLAS_MODEL="ViT-B-32/openai", **nowhere)
    try:
        page = httpx.get(f"{server.address}/config", timeout=60).text
        assert text.page.BANNER_HEADING in page
        assert "hub cannot be reached" in page
        assert "hub cannot be reached" in server.log
    finally:
        stop_server(server)


def test_a_model_that_nobody_knows_is_replaced_with_the_reason(monkeypatch):
    monkeypatch.setenv("ATLAS_MODEL", "ViT-B-23/openai")
    opened = open_engine()
    with opened.engine:
        assert "ViT-B-32" in opened.reason
        assert "bundled" in opened.reason or "Use" in opened.reason


def test_without_a_model_at_all_the_app_says_so_and_ends(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATLAS_ASSETS", str(tmp_path))
    assert main([]) == 1
    assert "the bundled model cannot be opened" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_in_a_sentence(server, tmp_path):
    port = server.address.rpartition(":")[2]
    done = subprocess.run(
        [sys.executable, "-m", "app", "--port", port],
        cwd=ROOT,
        env=os.environ | {"ATLAS_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (1, text.page.no_port(int(port)))


def test_every_example_picture_is_the_recorded_one_and_small():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    recorded = dict(
        reversed(line) for line in re.findall(r"^(\w{64}) +\d+ +(\S+\.jpg)$", readme, re.MULTILINE)
    )
    asked = {str(FOLDER / file) for example in ASK_EXAMPLES for file in example.files}
    progress = {path for one in FEW_SHOT_EXAMPLES for row in one.request.rows for path in row.paths}
    tried = {sample.path for one in FEW_SHOT_EXAMPLES for sample in one.request.samples}
    assert asked | progress | tried == {str(FOLDER / name) for name in recorded}
    assert asked | progress | tried == {str(path) for path in FOLDER.rglob("*.jpg")}
    for name, digest in recorded.items():
        data = (FOLDER / name).read_bytes()
        assert hashlib.sha256(data).hexdigest() == digest
        assert len(data) < 60_000
        assert min(atlas.read_image(FOLDER / name, isolated=False).pixels.shape[:2]) >= 190


def test_no_picture_of_a_lesson_is_both_taught_and_tried():
    for example in FEW_SHOT_EXAMPLES:
        few_shot_request = example.request
        progress = {Path(path).read_bytes() for row in few_shot_request.rows for path in row.paths}
        tried = [Path(sample.path).read_bytes() for sample in few_shot_request.samples]
        assert len(progress) == sum(len(row.paths) for row in few_shot_request.rows)
        assert not progress.intersection(tried)
        assert {sample.label for sample in few_shot_request.samples} == set(few_shot_request.classes)
