"""The runner and its ledger: each cell measured once, kept on disk as it is made, read again after a kill."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from atlas_engine.errors import EvalError
from studies.grid import Cell, Ledger, StudyRow, key_of, run_grid


def test_what_was_put_is_there_for_the_next_one(tmp_path):
    first = Ledger(tmp_path / "rows")
    assert first.get("a") is None
    assert first.put("a", {"accuracy": 0.5, "arm": "naïve"}) == {"accuracy": 0.5, "arm": "naïve"}
    first.put("b", {"accuracy": 0.25})
    second = Ledger(tmp_path / "rows")
    assert len(second) == 2
    assert second.get("a") == first.get("a")
    assert repr(second) == "Ledger(2 rows in rows)"


def test_a_thing_is_measured_once(tmp_path):
    def never():
        raise AssertionError("it was measured again")

    assert Ledger(tmp_path / "rows").once("a", lambda: {"n": 1}) == ({"n": 1}, True)
    assert Ledger(tmp_path / "rows").once("a", never) == ({"n": 1}, False)


def test_a_line_that_a_kill_cut_off_is_forgotten_and_the_next_is_whole(tmp_path):
    path = tmp_path / "rows"
    Ledger(path).put("a", {"n": 1})
    with path.open("a") as file:
        file.write('{"key": "b", "n"')
    after = Ledger(path)
    assert after.get("b") is None
    after.put("b", {"n": 2})
    assert Ledger(path).get("a") == {"n": 1}
    assert Ledger(path).get("b") == {"n": 2}


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"n": 1}'])
def test_a_strange_line_is_named_and_the_file_stays(tmp_path, line):
    path = tmp_path / "rows"
    path.write_text(f'{{"key": "a", "n": 1}}\n{line}\n')
    with pytest.raises(EvalError, match=r"line 2 of .*rows is none of ours"):
        Ledger(path)
    assert line in path.read_text()


def test_a_ledger_that_cannot_be_written_says_so(tmp_path):
    with pytest.raises(EvalError, match="cannot write"):
        Ledger(tmp_path / "nowhere" / "rows").put("a", {})
    with pytest.raises(EvalError, match="cannot read"):
        Ledger(tmp_path)


def test_a_key_stands_for_everything_given():
    assert key_of("a", 1, {"x": 1, "y": 2}) == key_of("a", 1, {"y": 2, "x": 1})
    assert len({key_of("a", 1), key_of("a", 2), key_of("a", "1"), key_of(["a", 1])}) == 4


def test_without_a_file_it_remembers_all_the_same():
    ledger = Ledger()
    ledger.put("a", {"n": 1})
    assert ledger.get("a") == {"n": 1}


def test_a_key_is_that_of_the_rows_recorded_so_far():
    facts = ("few-shot", "model", "problem", 0, "tip", {"bank": "b", "config": {"steps": 40, "lr": 0.1}})
    assert key_of(*facts) == "ec674c9b9b66b7da50b49560"


@dataclass(frozen=True)
class Score(StudyRow):
    dataset: str
    seed: int
    method: str
    accuracy: float


def run(datasets, ledger, *, methods=("a", "b"), on_start=lambda _: None):
    """The rows of a grid, and the cells that were measured for it."""
    measured = []

    def cell(dataset, images, seed, method):
        def measure():
            measured.append((dataset, seed, method))
            return Score(dataset, seed, method, len(images) / 10).as_dict()

        return Cell(f"{dataset}, {method}", (images, seed, method), measure, Score, {"dataset": dataset})

    def cells_of(dataset, images, seed):
        return (cell(dataset, images, seed, method) for method in methods)

    found = list(run_grid(datasets, cells_of, seeds=2, ledger=ledger, on_start=on_start))
    return found, measured


SETS = {"pets": "12345", "plants": "123"}


def test_the_first_seed_of_all_data_sets_comes_first():
    found, measured = run(SETS, Ledger())
    order = [(d, seed, m) for seed in (0, 1) for d in ("pets", "plants") for m in ("a", "b")]
    assert measured == order
    assert [(row.dataset, row.seed, row.method) for row, _ in found] == order
    assert all(fresh for _, fresh in found)


def test_a_cell_is_measured_once_and_only_new_ones_later(tmp_path):
    rows = [row for row, _ in run(SETS, Ledger(tmp_path / "rows"))[0]]
    again, measured = run(SETS, Ledger(tmp_path / "rows"))
    assert (again, measured) == ([(row, False) for row in rows], [])
    _, measured = run(SETS, Ledger(tmp_path / "rows"), methods=("a", "c"))
    assert {method for _, _, method in measured} == {"c"}


def test_a_renamed_data_set_keeps_its_rows_under_its_new_name(tmp_path):
    run(SETS, Ledger(tmp_path / "rows"))
    found, measured = run({"animals": SETS["pets"]}, Ledger(tmp_path / "rows"))
    assert measured == []
    assert {row.dataset for row, _ in found} == {"animals"}


def test_reading_and_every_cell_are_announced():
    notes = []
    run({"pets": "1"}, Ledger(), methods=("a",), on_start=notes.append)
    assert notes == ["pets, reading", "pets, a"] * 2
