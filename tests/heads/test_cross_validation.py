"""Folds are fair, fixed by their seed, and keep duplicates together; the interval is Wilson's."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.errors import ConfigError, EvalError
from atlas_engine.heads.base import UNUSED
from atlas_engine.heads.cross_validation import assign_folds, wilson_interval
from tests.heads.synthetic import make_support, take_rows


def test_folds_hold_a_fair_share_of_each_class():
    support, _ = make_support((40, 16, 9, 3))
    fold = assign_folds(support, folds=8)
    assert fold.unique().tolist() == list(range(8))
    for label, count in enumerate((40, 16, 9, 3)):
        sizes = torch.bincount(fold[support.labels == label], minlength=8)
        assert sizes.max() - sizes.min() <= 1, f"{count} images lie {sizes.tolist()}"


def test_there_are_no_more_folds_than_images():
    support, _ = make_support((2, 3))
    assert sorted(assign_folds(support, folds=64).tolist()) == list(range(5))


def test_the_seed_deals_the_folds():
    support, _ = make_support((40, 40))
    assert torch.equal(assign_folds(support, folds=8, seed=1), assign_folds(support, folds=8, seed=1))
    assert not torch.equal(assign_folds(support, folds=8, seed=1), assign_folds(support, folds=8, seed=2))


def test_duplicates_share_a_fold():
    support, _ = make_support((3, 3))
    doubled = take_rows(support, torch.tensor([0, 1, 2, 3, 4, 5, 0, 0]))
    fold = assign_folds(doubled, folds=64)
    assert fold[0] == fold[6] == fold[7]
    assert len(fold.unique()) == 6


def test_rows_that_are_not_used_are_in_no_fold():
    support, _ = make_support((3, 3))
    fold = assign_folds(support.without(torch.tensor([2])), folds=5)
    assert fold[2] == UNUSED
    assert sorted(fold[fold != UNUSED].tolist()) == list(range(5))


def test_one_fold_holds_nothing_out():
    support, _ = make_support((2, 2))
    with pytest.raises(ConfigError, match="folds is 1"):
        assign_folds(support, folds=1)
    assert assign_folds(support, folds=2).unique().tolist() == [0, 1]


def test_wilsons_interval_is_the_textbook_one():
    assert wilson_interval(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-3)
    assert wilson_interval(8, 10) == pytest.approx((0.490, 0.943), abs=1e-3)
    assert wilson_interval(50, 100) == pytest.approx((0.4038, 0.5962), abs=1e-4)


@pytest.mark.parametrize(("right", "count"), [(0, 0), (3, 2), (-1, 2)])
def test_a_share_of_nothing_or_of_too_much_is_refused(right, count):
    with pytest.raises(EvalError, match=f"{right} of {count}"):
        wilson_interval(right, count)
