"""`atlas eval peft` and `atlas eval disentangle`, run as a person runs them, on a small model and bank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from atlas_engine.bank.bank_file import save_bank
from studies.tower_training import TowerTrainer
from tests.cli.image_sets import BANK, require_refusal, write_image_sets
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

QUICK = ("--seeds", "1", "--max-train", "8", "--max-test", "4", "--steps", "2", "--batch", "4")
SHARES = ("--percents", "50,100", "--partitions", "1,3")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    vectors = {task: {"red": 6, "dark_green": 6} for task in ("task0", "task1")}
    root = write_image_sets(tmp_path_factory.mktemp("peft"), {"paint": {"red": 6, "blue": 6}, **vectors})
    save_bank(tiny_bank(tiny_engine().backbone.visual, seed=9), root / "lora.safetensors")
    return root


@pytest.fixture
def evaluate(image_sets, tiny_atlas):
    def run(verb, *words, targets=("paint",), bank=True):
        banked = ("--bank", image_sets / BANK) if bank else ()
        folders = [image_sets / target for target in targets]
        return tiny_atlas("eval", verb, *folders, *banked, *QUICK, *words)

    return run


def test_peft_writes_rows_tables_and_a_figure(evaluate, tmp_path):
    words = ("--json", "f.json", "--markdown", "f.md", "--figure", "f.svg")
    code, printed, _ = evaluate("peft", *SHARES, *(tmp_path / w if w[0] == "f" else w for w in words))
    assert code == 0
    rows = json.loads((tmp_path / "f.json").read_text())
    assert len(rows) == 2 * (3 * 2 + 1)
    assert {row["way"] for row in rows} == {"standard", "rank 16", "LoRA", "fine-tuning"}
    page = (tmp_path / "f.md").read_text()
    for text in ("standard × 3", "LoRA, as × 3", "What more parts K bring", "2 steps of 4 at lr 0.2"):
        assert text in printed
        assert text in page
    texts = [element.text for element in ET.parse(tmp_path / "f.svg").iter()]
    assert {"standard × 1", "100 %"} <= set(texts)


def test_a_bank_of_lora_vectors_takes_the_place_of_those_cut_down(evaluate, image_sets, tmp_path):
    words = ("--lora-bank", image_sets / "lora.safetensors", "--json", tmp_path / "f.json")
    code, printed, _ = evaluate("peft", "--percents", "100", "--partitions", "1", *words)
    assert code == 0
    assert "LoRA vectors × 1" in printed
    assert "rank 16" not in printed


def test_a_command_given_again_measures_nothing_and_says_the_same(evaluate, tmp_path, monkeypatch):
    words = (*SHARES, "--json", tmp_path / "f.json")
    first = evaluate("peft", *words)
    kept = (tmp_path / "f.json.rows").read_text()
    monkeypatch.setattr(TowerTrainer, "activations_of_views", None)
    assert evaluate("peft", *words)[:2] == first[:2]
    assert (tmp_path / "f.json.rows").read_text() == kept


def test_disentangle_tells_pairs_and_numbers_of_coefficients(evaluate, tmp_path):
    words = ("--partitions", "1,2", "--json", tmp_path / "f.json", "--figure", tmp_path / "f.svg")
    code, printed, _ = evaluate("disentangle", *words, targets=("task0", "task1", "paint"))
    assert code == 0
    rows = json.loads((tmp_path / "f.json").read_text())
    pairs = [row for row in rows if "error" in row]
    assert [(row["first"], row["second"], row["scaling"]) for row in pairs] == [
        ("task0", "task1", scaling) for scaling in ("λ = 1", "isotropic", "anisotropic")
    ]
    assert len(rows) - len(pairs) == 3 * (2 * 3 + 1)
    for text in ("Two vectors at once", "task0 + task1", "random directions", "of fine-tuning's gain %"):
        assert text in printed
    assert "task0 + task1" in [element.text for element in ET.parse(tmp_path / "f.svg").iter()]


@pytest.mark.parametrize(
    ("verb", "words", "code", "sentence"),
    [
        ("peft", ("--percents", "0"), 2, "1 to 100"),
        ("peft", ("--partitions", ","), 2, "partitions is empty"),
        ("peft", ("--without", "task9"), 1, "task 'task9' is not known"),
        ("peft", ("--figure", "gains.png"), 2, "must end in .svg"),
        ("disentangle", (), 2, "0 of the folders has a vector in the bank, but a pair needs 2"),
        ("disentangle", ("--json", "nowhere/x.json"), 2, "a folder that exists"),
    ],
)
def test_bad_words_are_one_sentence(evaluate, verb, words, code, sentence):
    require_refusal(evaluate(verb, *words), code, sentence)


def test_without_a_bank_there_is_nothing_to_scale(evaluate):
    for verb in ("peft", "disentangle"):
        code, printed, err = evaluate(verb, bank=False)
        assert (code, printed) == (2, "")
        assert "tiny has no bank of task vectors. Give --bank FILE." in err
