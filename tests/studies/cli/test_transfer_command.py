"""`atlas eval transfer`, run as a person runs it, on a small model and bank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from studies.methods import Solver
from tests.cli.image_sets import BANK, require_refusal, write_image_sets
from tests.drawn import write_pictures

QUICK = ("--shots", "2", "--seeds", "2", "--max-test", "6", "--steps", "2", "--batch", "4")
METHODS = ("--methods", "zero-shot,lpp,atlas,auto", "--damages", "fog:3")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    """One set in two domains, one with other classes, and a bank."""
    sets = {"pacs/photo": {"red": 6, "blue": 6}, "other": {"dark_green": 6, "grey": 6}}
    root = write_image_sets(tmp_path_factory.mktemp("transfer"), sets)
    write_pictures(root / "pacs" / "sketch", {"red": 6, "blue": 6, "grey": 6}, side=12)
    return root


@pytest.fixture
def ask(image_sets, tiny_atlas):
    def run(*words, sources=("pacs/photo",), to=("pacs/sketch",), bank=True):
        banked = ("--bank", image_sets / BANK) if bank else ()
        others = [word for name in to for word in ("--to", image_sets / name)]
        folders = [image_sets / source for source in sources]
        return tiny_atlas("eval", "transfer", *folders, *others, *banked, *QUICK, *words)

    return run


def test_it_writes_rows_tables_and_a_figure(ask, tmp_path):
    words = ("--json", "f.json", "--markdown", "f.md", "--figure", "f.svg")
    code, printed, _ = ask(
        *METHODS, *(tmp_path / w if w[0] == "f" else w for w in words), sources=("pacs/photo", "other")
    )
    assert code == 0
    rows = json.loads((tmp_path / "f.json").read_text())
    assert len(rows) == 2 * 4 * (3 + 2), "the other has no domain but its own, damaged"
    assert {row["domain"] for row in rows if row["source"] == "photo"} == {"photo", "sketch", "fog:3"}
    page = (tmp_path / "f.md").read_text()
    for text in ("lost away", "photo: accuracy in %, learned from 2 shots", "2 steps of 4", "(3 of float32)"):
        assert text in printed
        assert text in page
    assert "photo (home)" in [element.text for element in ET.parse(tmp_path / "f.svg").iter()]


def test_a_command_given_again_measures_nothing_and_says_the_same(ask, tmp_path, monkeypatch):
    words = (*METHODS, "--json", tmp_path / "f.json")
    first = ask(*words)
    monkeypatch.setattr(Solver, "text", None)
    assert ask(*words)[:2] == first[:2]


@pytest.mark.parametrize(
    ("words", "more", "code", "sentence"),
    [
        (("--damages", "fogg:3"), {}, 2, "Did you mean 'fog'"),
        (("--methods", "lppp"), {}, 2, "Did you mean 'lpp'"),
        ((), {"to": ("other",)}, 1, "other lacks classes of each source (photo)"),
        ((), {"to": ("pacs/photo",)}, 1, "photo is given twice"),
        ((), {"bank": False}, 2, "tiny has no bank of task vectors"),
    ],
)
def test_bad_words_are_one_sentence(ask, words, more, code, sentence):
    require_refusal(ask(*words, **more), code, sentence)
