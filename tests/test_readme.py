"""What the README says is run, so that it cannot drift."""

from __future__ import annotations

import re

from tests.drawn import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    fenced = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)
    return [code for name, code in fenced if name == language]


def test_the_python_example_runs_and_tells_a_cat_from_a_rocket(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = blocks("python")[0]
    assert len(code.strip().splitlines()) <= 10
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cat.jpg     cat ")
    assert lines[1].startswith("rocket.jpg  rocket ")


def test_the_second_example_adapts_and_says_whether_it_helped(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    code = blocks("python")[1]
    exec(compile(code, "README.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("learn 23") for line in lines)
    assert any("of 20 images held out" in line for line in lines)
    assert lines[-1].startswith("1.jpg  ")


def test_the_two_commands_come_first_and_exist():
    first = blocks("")[0]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("demo", "test"):
        assert f"make {command}" in first
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def test_every_link_leads_to_a_file():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
