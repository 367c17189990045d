"""Tables align, and nothing in a cell can break out of its line."""

from __future__ import annotations

import pytest

from atlas_engine.views.tables import markdown_table, printable, table


def test_numbers_go_right_and_words_go_left():
    text = table([("otter", 9, True), ("sea lion", 123, False)], ("class", "n", "passed"))
    assert text.splitlines() == [
        "class       n  passed",
        "otter       9  yes",
        "sea lion  123  no",
    ]


def test_a_missing_number_is_a_dash_and_does_not_change_the_side():
    assert table([("a", None), ("b", 1.5)], ("x", "value")).splitlines()[1:] == ["a      –", "b    1.5"]


def test_wide_letters_and_combining_marks_stay_aligned():
    lines = table(
        [("水獭", "|"), ("e\u0301e\u0301e\u0301", "|"), ("otter", "|")], ("class", "end")
    ).splitlines()
    assert lines[1:] == ["水獭   |", "e\u0301e\u0301e\u0301    |", "otter  |"]


def test_a_hostile_cell_stays_on_its_line():
    text = table([("a\nb\x1b[2J\r", 1)], ("name", "n"))
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text
    assert printable("tab\there\x00") == "tab here\ufffd"


def test_markdown_escapes_the_bar_and_marks_numbers():
    assert markdown_table([("a|b", 1)], ("name", "n")).splitlines() == [
        "| name | n |",
        "| --- | ---: |",
        "| a\\|b | 1 |",
    ]


def test_a_table_without_rows_is_its_header():
    assert table([], ("name", "n")) == "name  n"


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ValueError, match="a row has 1 cells but the table has 2 columns"):
        table([("a",)], ("name", "n"))
