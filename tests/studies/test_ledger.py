"""The ledger: rows kept on disk as they are made, and read again after a kill."""

from __future__ import annotations

import pytest

from atlas_engine.errors import EvalError
from studies.grid import Ledger, key_of


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
