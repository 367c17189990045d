"""Two vectors at once, and few coefficients: by closed forms on a small tower."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from studies.dimension import RANDOM, VECTORS, DimensionRow, random_directions, run_dimensions
from studies.disentangle import SCALINGS, DisentangleSettings, PairRow, own_vector_of, run_pairs
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
    return [row for row, _ in run_pairs(sittings(tiny, folders), bank, ledger=ledger)]


@pytest.fixture(scope="module")
def dimensions(tiny, bank, folders, ledger):
    two = {name: folders[name] for name in ("colours", "strange")}
    return [row for row, _ in run_dimensions(sittings(tiny, two), bank, partitions=(1, 2), ledger=ledger)]


def sittings(tiny, folders, **changes):
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


def test_a_vector_of_zeros_disturbs_the_other_not_at_all(pairs):
    """So ξ is 0 for the other's pictures, and half of what the other changes for its own."""
    for scaling in SCALINGS:
        row = of(pairs, "colours + zero", scaling)
        assert row.cosine == 0
        assert row.error <= 0.5


def test_the_cosine_of_vectors_as_they_are_is_that_of_their_late_blocks(tiny, bank, pairs):
    late = TowerTrainer(tiny, QUICK).donors(bank)
    expected = late.vector("colours").cosine(late.vector("noise"))
    assert of(pairs, "colours + noise", "λ = 1").cosine == pytest.approx(expected, abs=1e-9)
    alike = of(pairs, "colours + noise", "isotropic").cosine
    assert abs(alike) == pytest.approx(abs(expected), abs=1e-6), "one number a vector turns nothing"


def test_without_steps_what_is_learned_is_zero_shot_and_disturbs_nothing(tiny, bank, folders):
    two = {name: folders[name] for name in ("colours", "noise")}
    rows = [row for row, _ in run_pairs(sittings(tiny, two, steps=0), bank, ledger=Ledger())]
    for row in rows[1:]:
        assert (row.error, row.cosine) == (0, 0)
        assert row.accuracy == row.alone == pytest.approx(row.zero_shot)


def test_the_error_is_the_share_of_answers_that_the_other_vector_changes(tiny, bank, folders, pairs):
    """By hand, for λ = 1: with the vector of zeros as the second, only its own pictures may change."""
    from atlas_engine.compose.encoder import materialise
    from studies.problems.few_shot import unit_features
    from studies.problems.training_sets import draw_training_set

    drawn = draw_training_set(folders["zero"], tiny.backbone.preprocessing, settings=QUICK, seed=0)
    late = TowerTrainer(tiny, QUICK).donors(bank).vector("colours").blocks
    base = dict(tiny.backbone.visual.named_parameters())
    moved = materialise(
        tiny.backbone.visual, {name: (base[name] + tau).detach().clone() for name, tau in late.items()}
    )
    head = tiny.head(drawn.classes)
    before, after = (
        (unit_features(tiny, tower, drawn.test.squares) @ head.T).argmax(dim=1)
        for tower in (tiny.backbone.visual, moved)
    )
    expected = float((before != after).double().mean()) / 2
    assert of(pairs, "colours + zero", "λ = 1").error == pytest.approx(expected)


def test_random_directions_are_as_long_in_every_block_and_not_alike(bank):
    random = random_directions(bank, seed=0)
    torch.testing.assert_close(random.lengths, bank.lengths, rtol=1e-4, atol=1e-7)
    assert random.tasks == bank.tasks
    assert abs(random.vector("colours").cosine(bank.vector("colours"))) < 0.1
    assert random.fingerprint != random_directions(bank, seed=1).fingerprint


def test_every_number_of_coefficients_has_both_kinds_of_directions(tiny, dimensions):
    labels = ["one a vector", "× 1", "× 2"]
    wanted = [(d, label) for d in (VECTORS, RANDOM) for label in labels] + [("fine-tuning", "fine-tuning")]
    for dataset, donors in (("colours", 2), ("strange", 3)):
        own = [row for row in dimensions if row.dataset == dataset]
        assert [(row.directions, row.layout) for row in own] == wanted
        blocks = TowerTrainer(tiny, QUICK).blocks
        sizes = [donors, donors * len(blocks), donors * sum(min(2, block.numel) for block in blocks)]
        assert [row.coefficients for row in own[:6]] == sizes * 2, "without what was made from the folder"
        assert len({row.zero_shot for row in own}) == 1


def test_a_second_run_computes_nothing(tiny, bank, folders, ledger, pairs, dimensions, monkeypatch):
    monkeypatch.setattr(TowerTrainer, "mixture", None)
    known = Ledger(ledger.path)
    again = list(run_pairs(sittings(tiny, folders), bank, ledger=known))
    two = {name: folders[name] for name in ("colours", "strange")}
    more = list(run_dimensions(sittings(tiny, two), bank, partitions=(1, 2), ledger=known))
    assert [row for row, _ in again] == pairs
    assert [row for row, _ in more] == dimensions
    assert not any(fresh for _, fresh in (*again, *more))


def test_rows_are_plain_json(pairs, dimensions):
    assert PairRow(**json.loads(json.dumps(pairs[0].as_dict()))) == pairs[0]
    assert DimensionRow(**json.loads(json.dumps(dimensions[0].as_dict()))) == dimensions[0]
