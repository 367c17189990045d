"""The grid of test-time methods: fair, complete, never measured twice, and blind to labels."""

from __future__ import annotations

import dataclasses
from collections import Counter

import pytest
import torch

from atlas_engine.adapt.methods import UNLABELLED_METHODS as TESTED
from atlas_engine.adapt.settings import TestTimeConfig
from atlas_engine.errors import ConfigError
from studies.corruptions import Corruption
from studies.grid import Ledger
from studies.methods import UNLABELLED_STUDY_METHODS, UnlabelledSolver
from studies.problems.draw import read_pixels
from studies.problems.few_shot import unit_features
from studies.problems.unlabelled import draw_unlabelled
from studies.unlabelled import UnlabelledStudySettings, name_by_images, run_unlabelled
from tests.drawn import write_pictures
from tests.tiny import tiny_bank
from tests.visual_towers import small_engine

GRID = UnlabelledStudySettings(
    methods=("zero-shot", "ln-entropy", "entropy", "auto"), sizes=("5", "all"), seeds=2, max_size=9, steps=2
)
FOG = (None, Corruption.parse("fog:3"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return write_pictures(tmp_path_factory.mktemp("problems") / "two", {"red": 9, "dark_green": 6})


@pytest.fixture(scope="module")
def folders(folder, pair):
    return {"colours": folder, "two": pair}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("ledger") / "rows")


@pytest.fixture(scope="module")
def rows(tiny, bank, folders, ledger):
    return [row for row, _ in run(tiny, bank, folders, ledger)]


def run(engine, bank, folders, ledger, *, corruptions=FOG, **changes):
    settings = dataclasses.replace(GRID, **changes)
    solver = UnlabelledSolver(engine, bank, settings.budget())
    return list(run_unlabelled(solver, folders, corruptions=corruptions, settings=settings, ledger=ledger))


def without_seconds(rows):
    return [dataclasses.replace(row, seconds=0.0) for row in rows]


def test_there_is_a_row_for_every_cell_in_the_order_of_work(rows):
    assert [(r.seed, r.dataset, r.corruption, r.present, r.size, r.method) for r in rows] == [
        (seed, dataset, corruption, present, size, method)
        for seed in (0, 1)
        for dataset in ("colours", "two")
        for corruption in ("none", "fog:3")
        for present in ("all", "few")
        for size in (5, "all")
        for method in ("zero-shot", "ln-entropy", "entropy", "auto")
    ]
    assert {row.images for row in rows if row.size == 5} == {5}
    capped = [row for row in rows if (row.dataset, row.present, row.size) == ("colours", "all", "all")]
    assert {row.images for row in capped} == {9}


def test_a_row_says_what_the_issue_asks_for(rows):
    first = rows[0].as_dict()
    which = ["dataset", "method", "size", "present", "corruption", "seed"]
    assert list(first)[:10] == [*which, "accuracy", "zero_shot", "rolled_back", "seconds"]
    assert all(0 <= row.accuracy <= 1 and row.seconds >= 0 for row in rows)


def test_every_method_is_compared_with_zero_shot_on_the_same_images(rows):
    by_roll = {}
    for row in rows:
        problem = (row.seed, row.dataset, row.corruption, row.present, row.size)
        by_roll.setdefault(problem, set()).add(row.zero_shot)
        if row.method == "zero-shot":
            assert row.change == row.seconds == 0
            assert row.rolled_back is False
    assert all(len(found) == 1 for found in by_roll.values())
    assert len({row.zero_shot for row in rows}) > 2, "or the test sees nothing"


def test_what_was_rolled_back_names_images_as_zero_shot_does(rows):
    back = [row for row in rows if row.rolled_back]
    assert all(row.accuracy == row.zero_shot for row in back)


def test_swapping_the_labels_of_two_classes_changes_only_the_scores(tiny, bank, pair):
    swapped = dataclasses.replace(
        pair, items=tuple(dataclasses.replace(item, label=1 - item.label) for item in pair.items)
    )
    found = run(tiny, bank, {"two": pair}, Ledger(), present=("all",), seeds=1)
    other = run(tiny, bank, {"two": swapped}, Ledger(), present=("all",), seeds=1)
    assert len(found) == len(other) == 2 * 2 * 4
    for (row, _), (mirrored, fresh) in zip(found, other, strict=True):
        assert fresh
        assert mirrored.accuracy == pytest.approx(1 - row.accuracy), "same answers, other labels"
        assert mirrored.zero_shot == pytest.approx(1 - row.zero_shot)
        assert mirrored.rolled_back == row.rolled_back


@pytest.mark.parametrize(
    "method", [name for name in UNLABELLED_STUDY_METHODS if name not in ("zero-shot", "auto", "stream")]
)
def test_a_method_gives_logits_for_the_images_in_their_order(tiny, bank, pair, method):
    drawn = draw_unlabelled(pair, tiny.backbone.preprocessing, max_images=6, seed=0)
    problem = drawn.problem(drawn.positions("all"))
    solver = UnlabelledSolver(tiny, bank, dataclasses.replace(GRID, steps=0).budget())
    answer = UNLABELLED_STUDY_METHODS[method].solve(solver, problem, 0)
    assert answer.logits.shape == (6, 2)
    assert torch.isfinite(answer.logits).all()
    if method.startswith("ln-") or TESTED[method].head == "none":  # a head learns without a step
        zero_shot = UNLABELLED_STUDY_METHODS["zero-shot"].solve(solver, problem, 0)
        torch.testing.assert_close(answer.logits, zero_shot.logits, rtol=1e-4, atol=1e-4)  # other batches


def test_a_second_run_computes_nothing_and_gives_the_same_rows(
    tiny, bank, folders, ledger, rows, monkeypatch
):
    before = ledger.path.read_bytes()
    monkeypatch.setattr(Corruption, "__call__", None)
    again = run(tiny, bank, folders, Ledger(ledger.path))
    assert [row for row, _ in again] == rows
    assert not any(fresh for _, fresh in again)
    assert ledger.path.read_bytes() == before


def test_a_killed_run_goes_on_with_what_is_left(tiny, bank, folders, ledger, rows, tmp_path):
    lines = ledger.path.read_text().splitlines(keepends=True)
    (tmp_path / "rows").write_text("".join(lines[:70]) + lines[70][:30])
    rest = run(tiny, bank, folders, Ledger(tmp_path / "rows"))
    assert Counter(fresh for _, fresh in rest)[True] == len(lines) - 70
    assert without_seconds(row for row, _ in rest) == without_seconds(rows)


def test_a_new_method_or_name_measures_only_itself(tiny, bank, folders, ledger, rows):
    more = run(tiny, bank, folders, Ledger(ledger.path), methods=("zero-shot", "ufm"), seeds=1, sizes=("5",))
    assert {(row.method, fresh) for row, fresh in more} == {("zero-shot", False), ("ufm", True)}
    renamed = run(tiny, bank, {"other name": folders["two"]}, Ledger(ledger.path), seeds=1)
    assert {(row.dataset, fresh) for row, fresh in renamed} == {("other name", False)}


def test_another_budget_or_bank_measures_again_what_depends_on_it(tiny, bank, folders, ledger, rows):
    found = run(tiny, bank, folders, Ledger(ledger.path), steps=1, seeds=1, sizes=("5",))
    assert {row.method for row, fresh in found if fresh} == {"ln-entropy", "entropy", "auto"}
    found = run(tiny, bank.without(["zero"]), folders, Ledger(ledger.path), seeds=1, sizes=("5",))
    assert {row.method for row, fresh in found if fresh} == {"entropy", "auto"}


def test_rolls_of_the_same_images_are_measured_once(tiny, bank, pair):
    more = {"sizes": ("15", "40", "all"), "present": ("all",), "max_size": None, "seeds": 1}
    found = run(tiny, bank, {"two": pair}, Ledger(), corruptions=(None,), methods=("entropy",), **more)
    assert [(row.size, fresh) for row, fresh in found] == [(15, True), (40, False), ("all", False)]
    assert {row.images for row, _ in found} == {15}


def test_every_start_is_announced(tiny, pair):
    notes = []
    settings = dataclasses.replace(GRID, sizes=("5",), methods=("zero-shot",), present=("few",), seeds=1)
    list(
        run_unlabelled(
            UnlabelledSolver(tiny), {"c": pair}, settings=settings, ledger=Ledger(), on_start=notes.append
        )
    )
    assert notes == ["c, reading", "c, none, 5 image(s), zero-shot"]


def test_settings_are_in_order_and_without_repetition():
    settings = UnlabelledStudySettings(sizes=("all", "20", "5", "20"), methods=("ufm", "zero-shot", "ufm"))
    assert (settings.sizes, settings.methods) == (("5", "20", "all"), ("ufm", "zero-shot"))
    assert UnlabelledStudySettings().budget() is None, "the product decides"
    assert UnlabelledStudySettings(steps=7).budget().steps == 7
    chosen = {"batch": 8, "lr": 0.1, "epochs": 2, "share": 1.0}
    budget = UnlabelledStudySettings(**chosen).budget()
    assert {name: getattr(budget, name) for name in chosen} == chosen
    assert (UnlabelledStudySettings().most, UnlabelledStudySettings(max_size=40).most) == (None, 100)
    assert UnlabelledStudySettings(sizes=("5", "20")).most == 20
    assert GRID.cells == 2 * 2 * 2 * 4
    for wrong, sentence in (
        ({"sizes": ()}, "sizes is empty"),
        ({"sizes": ("0",)}, "at least 1, or 'all'"),
        ({"sizes": ("many",)}, "'many'"),
        ({"present": ("fwe",)}, "Did you mean 'few'"),
        ({"methods": ("ln-umf",)}, "Did you mean 'ln-ufm'"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            UnlabelledStudySettings(**wrong)


def test_a_tower_without_text_is_asked_by_prototypes_that_are_not_among_the_images(tmp_path):
    engine = small_engine(tmp_path / "tower.safetensors")
    folder = write_pictures(tmp_path / "set", {"red": 5, "blue": 5})
    solver = UnlabelledSolver(engine, tiny_bank(engine.backbone.visual), TestTimeConfig(steps=1, epochs=0))
    named, rest = name_by_images(solver, folder, 2, seed=0)
    taken = [item for item in folder.items if item not in rest.items]
    assert [item.label for item in taken] == [0, 0, 1, 1]
    pixels = read_pixels(taken, engine.backbone.preprocessing)
    means = unit_features(engine, engine.backbone.visual, pixels).unflatten(0, (2, 2)).mean(dim=1)
    torch.testing.assert_close(named.engine.head(folder.display_names), torch.nn.functional.normalize(means))
    settings = UnlabelledStudySettings(
        methods=("zero-shot", "entropy+balanced"), sizes=("all",), present=("all",), seeds=1, prototypes=2
    )
    ledger = Ledger()
    rows = [row for row, _ in run_unlabelled(solver, {"set": folder}, settings=settings, ledger=ledger)]
    assert [(row.method, row.images) for row in rows] == [("zero-shot", 6), ("entropy+balanced", 6)]
    assert rows[0].accuracy == rows[1].zero_shot
    more = dataclasses.replace(settings, prototypes=1, methods=("zero-shot",))
    assert all(fresh for _, fresh in run_unlabelled(solver, {"set": folder}, settings=more, ledger=ledger))
