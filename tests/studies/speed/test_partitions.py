"""K coefficients per block, and folds side by side, against the formula; wrong answers are seen."""

from __future__ import annotations

import pytest

from atlas_engine.compose.coefficients import Layout
from studies.speed.composition import CompositionCase, draw_tower
from studies.speed.partitions import FoldsFormulation, measure_partitions


@pytest.fixture(scope="module", params=["float32", "int4"])
def case(request):
    return CompositionCase.draw(draw_tower(layers=0), storage=request.param, forwards=1)


@pytest.mark.parametrize(
    ("layout", "folds"),
    [
        (Layout(), 1),
        (Layout(partitions=20, split_by="rows"), 1),
        (Layout(partitions=20, split_by="rows"), 3),
        (Layout(partitions=20), 2),
    ],
    ids=str,
)
def test_every_layout_gives_the_expected_answer_and_a_wrong_one_is_seen(case, layout, folds):
    one = FoldsFormulation(case, layout, folds=folds)
    answers = one.answer()
    assert len(answers) == folds
    assert one.matches(answers)
    theta, grad = answers[-1]
    assert not one.matches([*answers[:-1], (theta + 1e-5, grad)])  # a hundredth of what fine-tuning moves
    assert not one.matches([*answers[:-1], (theta, 1.001 * grad)])
    if folds > 1:
        assert not one.matches(answers[::-1])


def test_the_measures_of_a_bank_are_two_bars_with_a_note_on_each_candidate(case):
    found, storage = measure_partitions(case, repeat=1), case.bank.storage
    assert [bar.measure for bar in found.bars] == [
        f"{storage}: × 20 by rows, compose + gradient, to K = 1",
        f"{storage}: × 20 by rows, compose + gradient of one more fold, to those of one run",
    ]
    assert [bar.limit for bar in found.bars] == [2.0, 0.35]
    assert found.bars[0].value > 0
    assert list(found.notes) == [
        f"{storage}, {name}" for name in ("K = 1", "× 20 by rows", "× 20 by rows, 4 folds", "× 20 by entries")
    ]
