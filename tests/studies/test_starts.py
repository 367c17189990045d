"""Starts from a mix of vectors: which coefficients they have, and what they add to the head."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.compose.used_vectors import build_tower
from studies.few_shot import RANDOM
from studies.grid import Ledger
from studies.problems.few_shot import draw_problem, unit_features
from studies.starts import (
    STARTS,
    Start,
    StartRow,
    StartSettings,
    count_starts,
    run_starts,
    start_coefficients,
    start_tables,
)
from tests.studies.drawn_tasks import QUICK

QUICK_STARTS = StartSettings(shots=(1, 2), max_classes=3, max_test=6)


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, seed=0)


def test_the_nearest_vectors_get_more_than_the_others(tiny, bank, problem):
    start = Start("both", of_all=0.1, nearest=1, of_nearest=0.2)
    values = start_coefficients(tiny, bank, start, problem).values
    assert sorted(values.tolist()) == pytest.approx([0.1] * (len(bank) - 1) + [0.3])
    features = unit_features(tiny, tiny.backbone.visual, tiny.pixels(problem.support.images))
    centroids = torch.tensor([info.centroid for info in bank.infos])
    nearest = torch.cosine_similarity(centroids, features.mean(dim=0, keepdim=True)).argmax()
    assert values.argmax() == nearest


def test_a_start_moves_the_tower_by_the_sum_of_its_vectors(tiny, bank, problem):
    coefficients = start_coefficients(tiny, bank, Start("all", of_all=0.5), problem)
    moved = dict(build_tower(tiny.backbone.visual, bank, coefficients).named_parameters())
    base = dict(tiny.backbone.visual.named_parameters())
    for block in bank.blocks:
        sum_of_vectors = bank.vectors_of(block).sum(dim=0).reshape(block.shape)
        torch.testing.assert_close(moved[block.name], base[block.name] + 0.5 * sum_of_vectors)


def test_every_start_is_measured_with_the_real_and_the_random_bank(tiny, bank, folder):
    ledger = Ledger()
    found = list(run_starts(tiny, bank, {"own": folder}, settings=QUICK_STARTS, ledger=ledger))
    assert len(found) == len(ledger) == count_starts(QUICK_STARTS, folders=1)
    names = {row.start for row, _ in found}
    assert names == {"base", *(start.name + ending for start in STARTS for ending in ("", RANDOM))}
    again = run_starts(tiny, bank, {"own": folder}, settings=QUICK_STARTS, ledger=ledger)
    assert [fresh for _, fresh in again] == [False] * len(found)
    # the folder's own vector is left out: a bank that never had it gives the same rows
    other = run_starts(
        tiny, bank.without([folder.name]), {"own": folder}, settings=QUICK_STARTS, ledger=Ledger()
    )
    real = [row for row, _ in found if not row.start.endswith(RANDOM)]
    assert [row for row, _ in other if not row.start.endswith(RANDOM)] == real


def test_what_a_start_adds_is_the_difference_to_the_head_on_the_same_problem():
    rows = [
        StartRow(dataset, start, 4, 0, accuracy, 10)
        for dataset, base, mixed in (("a", 0.5, 0.6), ("b", 0.7, 0.7))
        for start, accuracy in (("base", base), ("mix", mixed))
    ]
    (table,) = start_tables(rows)
    assert table.rows == [("text-probe on the base", "60.0 ± 10.0"), ("mix", "+5.0 ± 5.0")]
