"""The notebooks run from top to bottom, as they stand, and show what they say."""

from __future__ import annotations

import ast
import json

import pytest

from tests.drawn import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def run_cells(path):
    """What each code cell shows: the value of its last line, where that is an expression."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    namespace, shown = {"__name__": "__main__"}, []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "a notebook is kept without outputs"
        tree = ast.parse("".join(cell["source"]), f"{path.name}[{number}]")
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, f"{path.name}[{number}]", "exec"), namespace)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), namespace))
    namespace["engine"].close()
    return shown


def test_there_are_three():
    assert [path.stem for path in NOTEBOOKS] == ["1-teach", "2-take-it-away", "3-data"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_what_it_shows_has_a_face(path, monkeypatch):
    monkeypatch.chdir(ROOT)
    if path.stem == "2-take-it-away":
        pytest.importorskip("onnxruntime")
    shown = run_cells(path)
    faces = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    faces += [value._repr_svg_() for value in shown if hasattr(value, "_repr_svg_")]
    assert faces
    assert all(face.startswith(("<div", "<svg")) for face in faces)
