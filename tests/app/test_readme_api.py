"""What the README shows of the API is run against the server, so that it cannot drift."""

from __future__ import annotations

import re
import shutil

import pytest

from app.mcp_tools import ADDRESS
from tests.serving import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_readmes_client_lines_run(server, archive, squares, tmp_path, monkeypatch, capsys):
    shutil.copy(archive, tmp_path / "photos.zip")
    shutil.copy(next((squares / "try").rglob("*.png")), tmp_path / "new.jpg")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (code,) = [block for block in blocks if "Client(" in block]
    for shown, here in {
        "http://127.0.0.1:7860": server.address,
        "samples=[],": "samples=[], steps=2,",  # two steps learn little and take little
        "ViT-B-32/openai": "bundled",  # there is no hub
    }.items():
        assert shown in code
        code = code.replace(shown, here)
    names = {}
    exec(compile(code, "README.md", "exec"), names)
    assert names["result"]["verdict"] in capsys.readouterr().out
    assert [row["image"] for row in names["rows"]["rows"]] == ["new.jpg"]


def test_the_readme_names_the_address_of_the_tools():
    assert f"`{ADDRESS}`" in README
