"""Tables of test-time methods, by numbers worked out by hand."""

from __future__ import annotations

import pytest

from studies.unlabelled import UnlabelledRow
from studies.unlabelled_report import unlabelled_grid, unlabelled_tables, worst_sets


def row(dataset, method, change, **more):
    given = {
        "size": 5,
        "present": "all",
        "corruption": "none",
        "seed": 0,
        "zero_shot": 0.5,
        "rolled_back": False,
        "seconds": 1.0,
        "images": 5,
    }
    fields = given | more
    return UnlabelledRow(dataset=dataset, method=method, accuracy=fields["zero_shot"] + change, **fields)


def table_of(tables, start):
    (table,) = [table for table in tables if table.title.startswith(start)]
    return {line[0]: line[1:] for line in table.rows}


ROWS = [
    row("pets", "zero-shot", 0.0),
    row("pets", "ufm", -0.02, seed=0, rolled_back=True),
    row("pets", "ufm", 0.0, seed=1, seconds=4.0),
    row("pets", "ufm", 0.1, corruption="fog:3", seed=0, zero_shot=0.2),
    row("pets", "ufm", 0.2, corruption="fog:3", seed=1, zero_shot=0.4),
    row("sketch", "ufm", 0.3, seed=0),
    row("sketch", "ufm", 0.4, seed=1),
]


def test_corrupted_sets_are_shifted_and_so_are_those_the_caller_names():
    tables = unlabelled_tables(ROWS)
    assert table_of(tables, "Change to zero-shot in points, mean over 1 shifted") == {"ufm": ("+15.0 ± 7.1",)}
    assert table_of(tables, "Change to zero-shot in points, mean over 2 clean") == {"ufm": ("+17.0 ± 4.2",)}
    tables = unlabelled_tables(ROWS, shifted=["sketch"])
    assert table_of(tables, "Change to zero-shot in points, mean over 2 shifted") == {"ufm": ("+25.0 ± 7.1",)}
    assert table_of(tables, "Change to zero-shot in points, mean over 1 clean") == {"ufm": ("-1.0 ± 1.4",)}


def test_the_worst_set_is_the_lowest_mean_over_seeds():
    assert [(one.name, pytest.approx(one.change)) for one in worst_sets(ROWS[1:])] == [
        ("pets", -0.01),
        ("pets fog:3", 0.15),
        ("sketch", 0.35),
    ]
    assert table_of(unlabelled_tables(ROWS), "Change to zero-shot in points on the worst set")["ufm"] == (
        "-1.0 (pets), 0 of 3",
    ), "a point is not more than a point"
    worse = [*ROWS, row("pets", "ufm", -0.5, seed=2)]
    assert table_of(unlabelled_tables(worse), "Change to zero-shot in points on the worst set")["ufm"] == (
        "-17.3 (pets), 1 of 3",
    )


def test_the_worst_roll_is_one_of_one_seed():
    assert table_of(unlabelled_tables(ROWS), "Change to zero-shot in points on the worst problem")["ufm"] == (
        "-2.0, 1 of 6",
    )


def test_what_auto_did_is_counted_where_it_is_known():
    assert not [table for table in unlabelled_tables(ROWS) if table.title.startswith("What was done")]
    chosen = [row("pets", "auto", 0.1, seed=seed, kept=kept) for seed, kept in enumerate("aab")]
    assert table_of(unlabelled_tables([*ROWS, *chosen]), "What was done") == {"auto": ("a 2, b 1",)}


def test_costs_are_the_median_and_how_often_a_method_rolled_back():
    assert table_of(unlabelled_tables(ROWS), "Seconds")["ufm"] == ("1.0, 1 of 6",)


def test_each_data_set_has_zero_shot_and_changes_for_each_corruption():
    (pets,) = [table for table in unlabelled_tables(ROWS) if table.title.startswith("pets:")]
    assert pets.columns == ("damage", "method", "n = 5")
    assert pets.rows == [
        ("as it is", "zero-shot %", "50.0 ± 0.0"),
        ("as it is", "ufm", "-1.0 ± 1.4"),
        ("fog:3", "zero-shot %", "30.0 ± 14.1"),
        ("fog:3", "ufm", "+15.0 ± 7.1"),
    ]


def test_a_column_is_a_size_with_who_is_present():
    rows = [
        row("pets", "auto", change, size=size, present=present)
        for change, (present, size) in enumerate([("all", 5), ("all", "all"), ("few", 5), ("few", "all")])
    ]
    grid = unlabelled_grid(rows)
    assert grid.columns == ("n = 5", "n = all", "n = 5, few", "n = all, few")
    assert grid.rows == ("auto",)
    assert grid.values == ((0.0, 100.0, 200.0, 300.0),)


def test_the_figure_shows_shifted_and_clean_sets_apart():
    grid = unlabelled_grid(ROWS, shifted=["sketch"])
    assert grid.rows == ("ufm, shifted", "ufm, clean")
    assert grid.values == (pytest.approx((25.0,)), pytest.approx((-1.0,)))
    assert "2 shifted and 1 clean set(s) and 2 seed(s)" in grid.about


def test_zero_shot_alone_has_its_accuracy_and_nothing_to_compare():
    tables = unlabelled_tables(ROWS[:1])
    assert [table.title.split(":")[0] for table in tables] == ["pets"]
    assert unlabelled_grid(ROWS[:1]).values == ((0.0,),)
