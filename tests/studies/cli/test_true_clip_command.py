"""`atlas eval true-clip`, run as a person runs it, on a small tower without text in a file."""

from __future__ import annotations

import json

import pytest

from atlas_engine.bank.bank_file import load_bank
from atlas_engine.cli import main
from tests.drawn import write_pictures
from tests.visual_towers import write_small_tower

QUICK = ("--shots", "1,2", "--max-test", "6", "--steps", "2", "--batch", "3", "--methods")
TRAINING = ("--vector-steps", "3", "--vector-batch", "4", "--vector-images", "16", "--vector-lr", "0.001")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    root = tmp_path_factory.mktemp("true-clip")
    write_pictures(root / "one", {"red": 10, "blue": 10})
    write_pictures(root / "two", {"dark_green": 10, "grey": 10})
    write_pictures(root / "target", {"red": 6, "dark_green": 6})
    return root


def test_vectors_are_made_once_and_measured_beside_random_ones(sets, tmp_path, capsys):
    model = write_small_tower(tmp_path / "t.safetensors")
    words = ["eval", "true-clip", sets / "target", "--bank-sets", sets / "one", sets / "two"]
    words += ["--work", tmp_path / "vectors", "--model", model, *TRAINING]
    assert main([str(word) for word in (*words, "--train-only")]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[0] for line in printed.splitlines() if line.startswith(("one", "two"))] == [
        "one",
        "two",
    ]
    assert sorted(path.name for path in (tmp_path / "vectors").iterdir()) == [
        "one.safetensors",
        "two.safetensors",
    ]
    norms = load_bank(tmp_path / "vectors" / "one.safetensors").block_norms[0]
    assert 0 < int((norms == 0).sum()) < len(norms), "the front of the tower stays, its end has moved"
    made = (tmp_path / "vectors" / "one.safetensors").read_bytes()

    code = main([str(w) for w in (*words, *QUICK, "zero-shot,lpp,atlas", "--json", tmp_path / "r.json")])
    printed = capsys.readouterr().out
    assert code == 0
    assert (tmp_path / "vectors" / "one.safetensors").read_bytes() == made
    rows = json.loads((tmp_path / "r.json").read_text())
    assert {row["method"] for row in rows} == {"prototypes", "lpp", "atlas", "atlas, random bank"}
    assert len(rows) == 2 * 4
    assert "Real bank above random bank" in printed
    assert "zero-shot" not in printed.lower()
