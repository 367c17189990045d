"""Two vectors at once: cosine and ξ by closed forms on a small tower."""

from __future__ import annotations

import dataclasses
import json

import pytest

from studies.disentangle import (
    SCALINGS,
    DisentangleSettings,
    PairRow,
    error_grid,
    own_vector_of,
    pair_tables,
    run_pairs,
)
from studies.grid import Ledger
from studies.tower_training import StudyTasks, TowerTrainer
from tests.drawn import write_pictures

QUICK = DisentangleSettings(
    seeds=1, max_train=12, max_test=9, steps=3, batch=6, share=0.5, partitions=(2, 1), views=1
)


@pytest.fixture(scope="module")
def folders(folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("pairs")
    return {
        "colours": folder,
        "noise": write_pictures(root / "noise", {"red": 8, "grey": 8}),
        "zero": write_pictures(root / "zero", {"blue": 8, "grey": 8}),
        "strange": write_pictures(root / "strange", {"red": 8, "blue": 8}),
    }


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("pairs") / "rows")


@pytest.fixture(scope="module")
def pairs(tiny, bank, folders, ledger):
    return [row for row, _ in run_pairs(study_tasks(tiny, folders), bank, ledger=ledger)]


def study_tasks(tiny, folders, **changes):
    settings = dataclasses.replace(QUICK, **changes)
    return StudyTasks(TowerTrainer(tiny, settings), folders, settings)


def of(pairs, pair, scaling):
    (row,) = [row for row in pairs if (row.pair, row.scaling) == (pair, scaling)]
    return row


def test_pairs_are_of_folders_with_vectors_in_every_scaling(bank, folders, pairs):
    assert own_vector_of(bank, folders) == {"colours": "colours", "noise": "noise", "zero": "zero"}
    names = ["colours + noise", "colours + zero", "noise + zero"]
    assert [(row.pair, row.scaling) for row in pairs] == [(pair, s) for pair in names for s in SCALINGS]
    assert all(0 <= row.error <= 1 and 0 <= row.accuracy <= 1 for row in pairs)


def test_a_vector_of_zeros_does_not_disturb_the_other(pairs):
    """So ξ is 0 for the other's images, and half of what the other changes for its own."""
    for scaling in SCALINGS:
        row = of(pairs, "colours + zero", scaling)
        assert row.cosine == 0
        assert row.error <= 0.5


def test_the_cosine_of_vectors_as_they_are_is_that_of_their_late_blocks(tiny, bank, pairs):
    late = TowerTrainer(tiny, QUICK).restrict(bank)
    expected = late.vector("colours").cosine(late.vector("noise"))
    assert of(pairs, "colours + noise", "λ = 1").cosine == pytest.approx(expected, abs=1e-9)
    alike = of(pairs, "colours + noise", "isotropic").cosine
    assert abs(alike) == pytest.approx(abs(expected), abs=1e-6), "one number a vector turns nothing"


def test_without_steps_what_is_learned_is_zero_shot_and_disturbs_nothing(tiny, bank, folders):
    two = {name: folders[name] for name in ("colours", "noise")}
    rows = [row for row, _ in run_pairs(study_tasks(tiny, two, steps=0), bank, ledger=Ledger())]
    for row in rows[1:]:
        assert (row.error, row.cosine) == (0, 0)
        assert row.accuracy == row.alone == pytest.approx(row.zero_shot)


def test_the_error_is_the_share_of_answers_that_the_other_vector_changes(tiny, bank, folders, pairs):
    """By hand, for λ = 1: with the vector of zeros as the second, only its own images may change."""
    from atlas_engine.compose.encoder import materialise
    from studies.problems.few_shot import unit_features
    from studies.problems.training_sets import draw_training_set

    drawn = draw_training_set(folders["zero"], tiny.backbone.preprocessing, settings=QUICK, seed=0)
    late = TowerTrainer(tiny, QUICK).restrict(bank).vector("colours").blocks
    base = dict(tiny.backbone.visual.named_parameters())
    moved = materialise(
        tiny.backbone.visual, {name: (base[name] + tau).detach().clone() for name, tau in late.items()}
    )
    head = tiny.head(drawn.classes)
    before, after = (
        (unit_features(tiny, tower, drawn.test.pixels) @ head.T).argmax(dim=1)
        for tower in (tiny.backbone.visual, moved)
    )
    expected = float((before != after).double().mean()) / 2
    assert of(pairs, "colours + zero", "λ = 1").error == pytest.approx(expected)


def test_a_second_run_computes_nothing(tiny, bank, folders, ledger, pairs, monkeypatch):
    monkeypatch.setattr(TowerTrainer, "coefficients", None)
    again = list(run_pairs(study_tasks(tiny, folders), bank, ledger=Ledger(ledger.path)))
    assert again == [(row, False) for row in pairs]


def test_a_row_is_plain_json(pairs):
    assert PairRow(**json.loads(json.dumps(pairs[0].as_dict()))) == pairs[0]


# ---- the report, by numbers worked out by hand


ROWS = [
    PairRow("a", "b", "isotropic", 0, 0.1, 0.2, 0.7, 0.6, 0.3),
    PairRow("a", "b", "anisotropic", 0, 0.05, 0.1, 0.8, 0.8, 0.3),
    PairRow("a", "c", "isotropic", 0, -0.1, 0.4, 0.5, 0.4, 0.3),
    PairRow("a", "c", "anisotropic", 0, 0.0, 0.2, 0.6, 0.6, 0.3),
]


def test_pairs_are_averaged_by_scaling_and_listed_one_by_one():
    mean, each = pair_tables(ROWS)
    assert mean.rows == [
        ("isotropic", "+0.000", "30.0", "60.0", "50.0"),
        ("anisotropic", "+0.025", "15.0", "70.0", "70.0"),
    ]
    assert mean.title.startswith("Two vectors at once, mean over 2 pair(s)")
    assert each.rows[1] == ("a + c", "-0.100", "+0.000", "40.0", "20.0")
    assert error_grid(ROWS).values[0] == pytest.approx((20.0, 10.0))
    assert pair_tables([]) == []
