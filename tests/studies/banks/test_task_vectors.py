"""What a bank's vectors look like: cosines and lengths, by closed form."""

from __future__ import annotations

import json

import pytest

from studies.banks.task_vectors import (
    BankGeometry,
    bank_geometry,
    cosine_grid,
    gain_grid,
    norm_grid,
    target_table,
)
from tests.studies.banks.fake_trials import TRIALS


def test_cosines_and_lengths_are_those_of_the_vectors(bank):
    geometry = bank_geometry(bank)
    one, other = bank.vector("colours"), bank.vector("noise")
    assert geometry.cosine[0][1] == pytest.approx(one.cosine(other), abs=1e-9)
    assert geometry.cosine[1][0] == geometry.cosine[0][1]
    assert geometry.cosine[0][0] == pytest.approx(1.0)
    assert sum(norm**2 for norm in geometry.norms[0]) ** 0.5 == pytest.approx(one.norm())


def test_layers_are_the_towers_from_the_stem_on(bank):
    geometry = bank_geometry(bank)
    assert geometry.layers == ("stem", "1", "2", "3")
    first_layer = [block for block in bank.blocks if block.layer == 1]
    expected = sum(float(bank.vector("noise").blocks[b.name].double().square().sum()) for b in first_layer)
    assert geometry.norms[1][1] == pytest.approx(expected**0.5)


def test_a_vector_of_zeros_is_like_none(bank):
    geometry = bank_geometry(bank)
    assert geometry.cosine[2] == (0.0, 0.0, 0.0)
    assert geometry.norms[2] == (0.0, 0.0, 0.0, 0.0)


def test_the_geometry_is_plain_json(bank):
    facts = json.loads(json.dumps(bank_geometry(bank).as_dict()))
    assert facts["tasks"] == ["colours", "noise", "zero"]
    assert len(facts["norms"]) == 3


# ---- the report, by numbers worked out by hand


def test_gains_are_points_above_zero_shot_with_the_mean_last():
    grid = gain_grid(TRIALS)
    assert (grid.rows, grid.columns) == (("signs", "all"), ("pets", "plants", "mean"))
    assert grid.values[0] == pytest.approx((3.0, -2.0, 0.5))
    assert grid.values[1] == pytest.approx((10.0, 21.0, 15.5))
    assert "4 shots" in grid.about
    assert "2 seed(s)" in grid.about


def test_targets_are_listed_with_their_zero_shot():
    table = target_table(TRIALS)
    assert list(table.rows) == [("pets", 6, 200, "50.0 ± 0.0"), ("plants", 6, 200, "50.0 ± 0.0")]


def test_the_geometry_becomes_two_grids():
    geometry = BankGeometry(("a", "b"), ("stem", "1"), ((1.0, 0.25), (0.25, 1.0)), ((3.0, 4.0), (0.0, 1.0)))
    assert cosine_grid(geometry).format_value(0.25) == "+0.25"
    assert cosine_grid(geometry).reach == 1.0
    assert norm_grid(geometry).columns == ("stem", "1")
    assert norm_grid(geometry).values[0] == (3.0, 4.0)
