"""`atlas eval task-vectors|bits|selection`, run as a person runs them, on a small model and bank."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import pytest

from atlas_engine.bank import TaskVectorBank
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.bank.vector import TaskVector, VectorInfo
from atlas_engine.engine import Atlas
from tests.cli.image_sets import BANK, require_refusal
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_vectors

QUICK = ("--shots", "2", "--seeds", "2", "--max-test", "6", "--steps", "2", "--batch", "4")


@pytest.fixture(scope="module")
def image_sets(tmp_path_factory):
    """Two targets and a bank of three vectors."""
    root = tmp_path_factory.mktemp("eval")
    write_pictures(root / "colours", {"red": 6, "blue": 6})
    write_pictures(root / "greens", {"dark_green": 6, "grey": 6})
    save_bank(TaskVectorBank.from_vectors(_vectors()), root / BANK)
    return root


def _vectors() -> list[TaskVector]:
    made = tiny_vectors(tiny_engine().backbone.visual, tasks=3)
    centroids = [tuple(float((i + t) % 3 - 1) for i in range(16)) for t in range(3)]
    return [
        TaskVector(one.name, one.blocks, one.base, VectorInfo(centroid=centroid))
        for one, centroid in zip(made, centroids, strict=True)
    ]


@pytest.fixture
def study(image_sets, tiny_atlas):
    def run(verb, *words, bank=BANK):
        targets = [image_sets / "colours", image_sets / "greens"]
        return tiny_atlas("eval", verb, *targets, "--bank", image_sets / bank, *QUICK, *words)

    return run


def test_task_vectors_tell_gains_cosines_and_norms(study, tmp_path):
    code, printed, _ = study(
        "task-vectors",
        "--json",
        tmp_path / "d.json",
        "--figure",
        tmp_path / "d.svg",
        "--markdown",
        tmp_path / "d.md",
    )
    assert code == 0
    assert all(
        title in printed for title in ("Targets", "What each vector is good for", "length", "like each other")
    )
    result = json.loads((tmp_path / "d.json").read_text())
    assert len(result["trials"]) == 4 * 2 * 2
    assert result["settings"]["shots"] == 2
    assert result["vectors"] == result["anatomy"]["tasks"] == ["task0", "task1", "task2"]
    page = (tmp_path / "d.md").read_text()
    assert page.count("| vector |") == 3
    assert "2 shots, 2 seed(s)" in page
    for name in ("d.svg", "d-cosines.svg", "d-norms.svg"):
        texts = [element.text for element in ET.parse(tmp_path / name).iter()]
        assert {"task0", "task1", "task2"} <= set(texts)


def test_a_gain_in_the_table_is_the_mean_of_the_trials(study, tmp_path):
    _, printed, _ = study("task-vectors", "--json", tmp_path / "d.json")
    trials = json.loads((tmp_path / "d.json").read_text())["trials"]
    own = [t["accuracy"] - t["zero_shot"] for t in trials if (t["arm"], t["target"]) == ("task1", "colours")]
    row = next(
        line.split() for line in printed.split("What each")[1].splitlines() if line.startswith("task1")
    )
    assert float(row[1].replace("−", "-")) == pytest.approx(100 * sum(own) / 2, abs=0.051)


def test_a_command_given_again_measures_nothing(study, tmp_path, monkeypatch):
    first = study("task-vectors", "--json", tmp_path / "d.json")
    rows = (tmp_path / "d.json.rows").read_text()
    assert len(rows.splitlines()) == 16

    def refuse(*_words, **_more):
        raise AssertionError("something was measured again")

    monkeypatch.setattr(Atlas, "few_shot", refuse)
    assert study("task-vectors", "--json", tmp_path / "d.json")[:2] == first[:2]
    assert (tmp_path / "d.json.rows").read_text() == rows


def test_a_stopped_command_goes_on_where_it_was(study, tmp_path, monkeypatch):
    real, calls = Atlas.few_shot, iter(range(100))

    def few_shot(self, *words, **more):
        if next(calls) == 5:
            raise KeyboardInterrupt
        return real(self, *words, **more)

    monkeypatch.setattr(Atlas, "few_shot", few_shot)
    code, printed, _ = study("task-vectors", "--json", tmp_path / "d.json")
    assert (code, printed) == (130, "")
    assert not (tmp_path / "d.json").exists()
    assert len((tmp_path / "d.json.rows").read_text().splitlines()) == 5
    assert study("task-vectors", "--json", tmp_path / "d.json")[0] == 0
    assert next(calls) == 6 + 11, "16 trials in all, of which 5 were done"


def test_bits_tell_costs_and_accuracies(study, tmp_path):
    code, printed, _ = study("bits", "--storages", "float16,int8", "--json", tmp_path / "b.json")
    assert code == 0
    measure_costs, accuracies = printed.split("\n\n")[:2]
    assert [line.split()[0] for line in measure_costs.splitlines()[2:]] == ["float32", "float16", "int8"]
    assert [line.split()[0] for line in accuracies.splitlines()[2:]] == [
        "float32",
        "float16",
        "int8",
        "zero-shot",
    ]
    result = json.loads((tmp_path / "b.json").read_text())
    assert [row["storage"] for row in result["costs"]] == ["float32", "float16", "int8"]
    assert len(result["trials"]) == 3 * 2 * 2


def test_selection_tells_strategies_by_budget(study, tmp_path):
    code, printed, _ = study("selection", "--budgets", "1,2,9", "--json", tmp_path / "s.json")
    assert code == 0
    mean, *each, _ = printed.split("\n\n")
    assert len(each) == 2
    columns = mean.splitlines()[1]
    assert "b = 1" in columns
    assert "b = 2" in columns
    assert columns.endswith("all 3")
    assert [line.split("  ")[0] for line in mean.splitlines()[2:]] == [
        "random",
        "features",
        "gradient",
        "gradient per block",
    ]
    assert len(json.loads((tmp_path / "s.json").read_text())["trials"]) == (4 * 2 + 1) * 2 * 2


@pytest.mark.parametrize(
    ("verb", "words", "code", "sentence"),
    [
        ("task-vectors", ["--figure", "gains.png"], 2, "must end in .svg"),
        ("task-vectors", ["--figure", "nowhere/gains.svg"], 2, "a folder that exists"),
        ("task-vectors", ["--markdown", "nowhere/x.md"], 2, "a folder that exists"),
        ("task-vectors", ["--shots", "0"], 2, "StudySettings.shots is 0 but must be at least 1"),
        ("task-vectors", ["--shots", "9"], 1, "but shots=9"),
        ("bits", ["--storages", "int7"], 1, "storage 'int7' is not known"),
        ("bits", ["--storages", ","], 2, "give at least one"),
        ("selection", ["--budgets", "0,2"], 2, "number of at least 1"),
    ],
)
def test_bad_words_are_one_sentence(study, tmp_path, monkeypatch, verb, words, code, sentence):
    monkeypatch.chdir(tmp_path)
    require_refusal(study(verb, *words), code, sentence)
    assert list(tmp_path.iterdir()) == []


def test_a_bank_that_lost_its_bits_is_refused(study, image_sets):
    save_bank(TaskVectorBank.from_vectors(_vectors(), storage="float16"), image_sets / "half.safetensors")
    code, _, err = study("bits", bank="half.safetensors")
    assert code == 1
    assert "Give the float32 bank that it was made from" in err
