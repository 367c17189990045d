"""`atlas eval test-time`, run as a person runs it, on a small model and bank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from atlas_engine.engine import Atlas
from studies.corruptions import Corruption
from tests.cli.image_sets import BANK, require_refusal, write_image_sets

QUICK = ("--sizes", "4,all", "--seeds", "2", "--max-size", "6", "--steps", "1")
BASELINE = ("--methods", "zero-shot,ln-entropy")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    """Two sets of one name in different places, and a bank."""
    sets = {
        "pacs/photo": {"red": 6, "blue": 6},
        "office/photo": {"dark_green": 6, "grey": 6, "task1": 5},
        "task1": {"red": 6, "grey": 6},
    }
    return write_image_sets(tmp_path_factory.mktemp("eval"), sets)


@pytest.fixture
def compare(image_sets, tiny_atlas):
    def run(*words, targets=("pacs/photo", "office/photo"), bank=True):
        banked = ("--bank", image_sets / BANK) if bank else ()
        folders = [image_sets / target for target in targets]
        return tiny_atlas("eval", "test-time", *folders, *banked, *QUICK, *words)

    return run


def test_it_writes_a_list_of_rows_and_prints_the_tables(compare, tmp_path):
    outputs = ("--json", tmp_path / "t.json", "--markdown", tmp_path / "t.md", "--figure", tmp_path / "t.svg")
    code, printed, _ = compare(*BASELINE, "--corrupt", "none,fog:3", "--corrupt", "contrast:2", *outputs)
    assert code == 0
    rows = json.loads((tmp_path / "t.json").read_text())
    assert len(rows) == 2 * 3 * 2 * 2 * 2 * 2, "data sets, damages, seeds, present, sizes, methods"
    assert {row["dataset"] for row in rows} == {"pacs/photo", "office/photo"}
    assert {row["corruption"] for row in rows} == {"none", "fog:3", "contrast:2"}
    assert {row["size"] for row in rows} == {4, "all"}
    expected = {"method", "present", "seed", "accuracy", "zero_shot", "rolled_back", "seconds"}
    assert all(expected <= set(row) for row in rows)
    titles = ("mean over 4 shifted set(s)", "mean over 2 clean set(s)", "worst set", "pacs/photo: accuracy")
    page = (tmp_path / "t.md").read_text()
    assert all(title in printed and title in page for title in titles)
    assert "2 seed(s), all classes; n = all is at most 6 images" in printed
    texts = [element.text for element in ET.parse(tmp_path / "t.svg").iter()]
    assert {"ln-entropy, shifted", "ln-entropy, clean", "n = 4", "n = all, few"} <= set(texts)


def test_a_number_in_the_table_is_the_mean_of_the_rows(compare, tmp_path):
    _, printed, _ = compare(*BASELINE, "--present", "all", "--json", tmp_path / "t.json")
    rows = json.loads((tmp_path / "t.json").read_text())
    own = [r["accuracy"] - r["zero_shot"] for r in rows if (r["method"], r["size"]) == ("ln-entropy", 4)]
    line = next(line for line in printed.splitlines() if line.startswith("ln-entropy"))
    assert float(line.split()[1]) == pytest.approx(100 * sum(own) / len(own), abs=0.051)


def test_a_domain_may_be_said_to_be_shifted(compare):
    _, printed, _ = compare(*BASELINE, "--shifted", "pacs/photo")
    assert "mean over 1 shifted set(s)" in printed
    assert "mean over 1 clean set(s)" in printed
    assert "Shifted as they are: pacs/photo." in printed


def test_a_command_given_again_measures_nothing_and_says_the_same(compare, tmp_path, monkeypatch):
    words = (*BASELINE, "--corrupt", "fog:3", "--json", tmp_path / "t.json")
    first = compare(*words)
    kept = (tmp_path / "t.json.rows").read_text()
    assert first[0] == 0
    monkeypatch.setattr(Corruption, "__call__", None)
    assert compare(*words)[:2] == first[:2]
    assert (tmp_path / "t.json.rows").read_text() == kept


def test_a_stopped_command_goes_on_where_it_was(compare, tmp_path, monkeypatch):
    real, calls = Atlas.test_time_norms, iter(range(100))

    def learn(self, *args, **more):
        if next(calls) == 3:
            raise KeyboardInterrupt
        return real(self, *args, **more)

    monkeypatch.setattr(Atlas, "test_time_norms", learn)
    words = ("--methods", "ln-entropy", "--present", "all", "--json", tmp_path / "t.json")
    code, printed, _ = compare(*words)
    assert (code, printed) == (130, "")
    assert not (tmp_path / "t.json").exists()
    assert len((tmp_path / "t.json.rows").read_text().splitlines()) == 3
    assert compare(*words)[0] == 0
    assert next(calls) == 4 + 5, "8 rows in all, of which 3 were done"


def test_rows_of_two_machines_make_one_table(compare, tmp_path):
    halves = []
    for target in ("pacs/photo", "office/photo"):
        compare(*BASELINE, "--json", tmp_path / "half.json", targets=[target])
        halves.append((tmp_path / "half.json.rows").read_text())
        (tmp_path / "half.json.rows").unlink()
    (tmp_path / "whole.json.rows").write_text("".join(halves))
    compare(*BASELINE, "--json", tmp_path / "whole.json")
    assert (tmp_path / "whole.json.rows").read_text() == "".join(halves), "nothing is measured again"
    assert len(json.loads((tmp_path / "whole.json").read_text())) == 2 * 2 * 2 * 2 * 2


def test_methods_that_mix_are_measured_with_the_bank_and_without_what_is_named(compare, tmp_path):
    words = ("--methods", "zero-shot,entropy,auto", "--sizes", "4", "--seeds", "1", "--present", "all")
    code, printed, err = compare(*words, "--json", tmp_path / "t.json", targets=["task1"])
    assert code == 0
    assert "(3 of float32)" in printed
    assert "vector 'task1' was made from task1" in err
    rows = json.loads((tmp_path / "t.json").read_text())
    assert [row["method"] for row in rows] == ["zero-shot", "entropy", "auto"]
    assert all(row["accuracy"] == row["zero_shot"] for row in rows if row["rolled_back"])
    code, printed, err = compare(*words, "--without", "task1", targets=["task1"])
    assert code == 0
    assert "(2 of float32)" in printed
    assert "made from" not in err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--methods", "zero-shot,ln-umf"), 2, "Did you mean 'ln-ufm'?"),
        (("--methods", ","), 2, "methods is empty"),
        (("--sizes", "0"), 2, "a number of at least 1, or 'all'"),
        (("--present", "some"), 2, "present"),
        (("--corrupt", "fgo:3"), 2, "Did you mean 'fog'?"),
        (("--corrupt", "fog"), 2, "needs a severity"),
        (("--corrupt", "fog:9"), 2, "takes 1 (mild) to 5 (hard)"),
        (("--corrupt", ","), 2, "give at least one"),
        (("--shifted", "sketch"), 2, "--shifted: folder 'sketch'"),
        (("--max-classes", "1"), 2, "at least 2"),
        (("--figure", "gains.png"), 2, "must end in .svg"),
        (("--markdown", "nowhere/x.md"), 2, "a folder that exists"),
        (("--json", "nowhere/x.json"), 2, "a folder that exists"),
    ],
)
def test_bad_words_are_one_sentence(compare, tmp_path, monkeypatch, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    require_refusal(compare(*BASELINE, *words), code, sentence)
    assert list(tmp_path.iterdir()) == []


def test_without_a_bank_there_is_zero_shot(compare):
    refusal = compare("--methods", "zero-shot,ln-ufm,auto", bank=False)
    require_refusal(refusal, 2, "tiny has no bank of task vectors, and ln-ufm, auto need them")
    assert "--methods zero-shot" in refusal[2]
    code, printed, _ = compare("--methods", "zero-shot", bank=False)
    assert code == 0
    assert "pacs/photo: accuracy of zero-shot" in printed


def test_bad_folders_are_one_sentence(compare):
    for targets, sentence in (
        (["pacs/photo", "pacs/photo"], "photo is given twice"),
        (["nowhere"], "nowhere"),
        (["pacs"], "has 1 class"),
    ):
        require_refusal(compare(*BASELINE, targets=targets), 1, sentence)
