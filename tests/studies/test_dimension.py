"""Accuracy by the number of coefficients, with task vectors and with random directions as long."""

from __future__ import annotations

import json

import pytest
import torch

from studies.dimension import (
    RANDOM,
    VECTORS,
    DimensionRow,
    dimension_tables,
    random_directions,
    run_dimensions,
)
from studies.disentangle import DisentangleSettings
from studies.grid import Ledger
from studies.tower_training import StudyTasks, TowerTrainer
from tests.drawn import write_pictures

QUICK = DisentangleSettings(seeds=1, max_train=12, max_test=9, steps=3, batch=6, share=0.5, views=1)


@pytest.fixture(scope="module")
def folders(folder, tmp_path_factory):
    root = tmp_path_factory.mktemp("dimensions")
    return {"colours": folder, "strange": write_pictures(root / "strange", {"red": 8, "blue": 8})}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    return Ledger(tmp_path_factory.mktemp("dimensions") / "rows")


@pytest.fixture(scope="module")
def dimensions(tiny, bank, folders, ledger):
    return [row for row, _ in run(tiny, bank, folders, ledger)]


def run(tiny, bank, folders, ledger):
    tasks = StudyTasks(TowerTrainer(tiny, QUICK), folders, QUICK)
    return list(run_dimensions(tasks, bank, partitions=(1, 2), ledger=ledger))


def test_random_directions_are_as_long_in_every_block_and_not_alike(bank):
    random = random_directions(bank, seed=0)
    torch.testing.assert_close(random.block_norms, bank.block_norms, rtol=1e-4, atol=1e-7)
    assert random.tasks == bank.tasks
    assert abs(random.vector("colours").cosine(bank.vector("colours"))) < 0.1
    assert random.fingerprint != random_directions(bank, seed=1).fingerprint


def test_every_number_of_coefficients_has_both_kinds_of_directions(tiny, dimensions):
    labels = ["one a vector", "× 1", "× 2"]
    wanted = [(d, label) for d in (VECTORS, RANDOM) for label in labels] + [("fine-tuning", "fine-tuning")]
    for dataset, vectors in (("colours", 2), ("strange", 3)):
        own = [row for row in dimensions if row.dataset == dataset]
        assert [(row.directions, row.layout) for row in own] == wanted
        blocks = TowerTrainer(tiny, QUICK).blocks
        sizes = [vectors, vectors * len(blocks), vectors * sum(min(2, block.numel) for block in blocks)]
        assert [row.coefficients for row in own[:6]] == sizes * 2, "without what was made from the folder"
        assert len({row.zero_shot for row in own}) == 1


def test_a_second_run_computes_nothing(tiny, bank, folders, ledger, dimensions, monkeypatch):
    monkeypatch.setattr(TowerTrainer, "coefficients", None)
    again = run(tiny, bank, folders, Ledger(ledger.path))
    assert again == [(row, False) for row in dimensions]


def test_a_row_is_plain_json(dimensions):
    assert DimensionRow(**json.loads(json.dumps(dimensions[0].as_dict()))) == dimensions[0]


# ---- the report, by numbers worked out by hand


ROWS = [
    DimensionRow("a", VECTORS, "× 1", 36, 0, 0.6, 0.4),
    DimensionRow("a", RANDOM, "× 1", 36, 0, 0.5, 0.4),
    DimensionRow("b", VECTORS, "× 1", 34, 0, 0.5, 0.4),
    DimensionRow("b", RANDOM, "× 1", 34, 0, 0.4, 0.4),
    DimensionRow("a", "fine-tuning", "fine-tuning", 900, 0, 0.7, 0.4),
    DimensionRow("b", "fine-tuning", "fine-tuning", 900, 0, 0.7, 0.4),
]


def test_coefficients_are_listed_with_their_share_of_what_fine_tuning_gains():
    (table,) = dimension_tables(ROWS)
    assert table.rows == [
        ("× 1", "34–36", VECTORS, "60.0", "50.0", "55.0", "50"),
        ("× 1", "34–36", RANDOM, "50.0", "40.0", "45.0", "17"),
        ("fine-tuning", "900", "fine-tuning", "70.0", "70.0", "70.0", "100"),
        ("zero-shot", "0", "–", "40.0", "40.0", "40.0", "0"),
    ]
