"""Every command of assets/bench/REPRODUCE.md runs to its end on a small ViT with random weights."""

from __future__ import annotations

import json

import pytest

from atlas_engine.cli import main
from tests.drawn import ROOT, write_pictures
from tests.standins import TASKS, stand_in
from tests.test_documented_commands import shell_lines, typed_commands

PAGE = ROOT / "assets" / "bench" / "REPRODUCE.md"
SETS = dict(zip(("dtd", "gtsrb", "svhn"), TASKS, strict=True))  # those of the page, and of the small bank
SMALL = {
    "import": "",
    "few-shot": "--shots 1 --validation 2 --seeds 1 --max-test 4 --steps 1 --batch 2",
    "test-time": "--seeds 1 --max-size 6 --steps 1 --epochs 1",
    "negate": "--seeds 1 --learn 4 --max-test 4 --control-test 4 --steps 1",
    "add": "--seeds 1 --learn 4 --max-test 4 --steps 1",
    "train": "--steps 1 --batch 2 --measure-every 1",
    "peft": "--percents 100 --partitions 1,2 --seeds 1 --max-train 8 --max-test 4 --steps 1 --batch 2",
    "selection": "--budgets 1 --shots 1 --seeds 1 --max-test 4 --steps 1 --batch 2",
}
"""Smaller sizes, put behind those of the page: of a flag that is given twice the last counts."""


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder to work in, and the name of a model: three checkpoints, and a set of images for each."""
    root = tmp_path_factory.mktemp("reproduce")
    model = stand_in(root / "model").model
    for name in (*TASKS, "imagenet"):
        write_pictures(root / "sets" / name, {"red": 8, "blue": 8})
    return root, model


def test_each_command_of_the_page_runs_and_writes_rows(small, monkeypatch, capsys):
    root, model = small
    monkeypatch.chdir(root)
    places = {f"sets/{name}": f"sets/{task}" for name, task in SETS.items()}
    places |= {"tanganke-b32": "model/checkpoints", "ViT-B-32-quickgelu/openai": model}
    commands = [
        words for line in shell_lines(PAGE.read_text(encoding="utf-8")) for words in typed_commands(line)
    ]
    assert [words[1] for words in commands] == list(SMALL)
    # a loop is run for one set, and for all where a later command needs what each has made
    sets = {"train": SETS, "other": dict(list(SETS.items())[:1])}
    several = [(words, *one) for words in commands for one in sets.get(words[1], sets["other"]).items()]
    for words, name, task in several:
        # templates keep the name of the page's set; folders and vectors are those of the small bank
        before = ["", *words]
        changed = [
            word.replace("$set", name if flag == "--templates" else task)
            for flag, word in zip(before, words, strict=False)
        ]
        for shown, used in places.items():
            changed = [word.replace(shown, used) for word in changed]
        code = main([*changed, *SMALL[words[1]].split()])
        assert code == 0, capsys.readouterr().err
        if "--json" in changed:
            found = json.loads((root / changed[changed.index("--json") + 1]).read_text(encoding="utf-8"))
            assert found["trials"] if words[1] == "selection" else found
