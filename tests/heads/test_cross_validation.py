"""Held-out logits are really held out; folds are fair, fixed by their seed, and keep twins together."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import UNUSED, LabelledFeatures, ZeroShot
from atlas_engine.heads.cross_validation import assign_folds, estimate, one_by_one
from atlas_engine.heads.lpp import LPP
from atlas_engine.heads.registry import HEADS
from atlas_engine.heads.tip import Tip, left_out_logits
from tests.heads.clouds import SCALE, accuracy, evidence


@pytest.mark.parametrize("name", ["none", "tip", "lpp", "linear-probe"])
def test_each_row_is_answered_by_a_head_made_without_it(name):
    found, _ = evidence((3, 1, 2), spread=1.0)
    logits = estimate(HEADS[name].folds, found)
    for row in range(6):
        others = torch.arange(6) != row
        rest = LabelledFeatures(found.features[others], found.labels[others], found.text, logit_scale=SCALE)
        wanted = HEADS[name].alone(rest).logits(found.features[row : row + 1])
        assert torch.allclose(logits[row : row + 1], wanted, atol=1e-3)  # other sums, 50 rounds of float32


def test_the_closed_form_of_the_cache_is_its_estimate():
    found, _ = evidence((4, 2, 1))
    logits = estimate(one_by_one(Tip.start), found)
    assert torch.allclose(logits, left_out_logits(found, alpha=2.0, beta=1.0), atol=1e-5)


def test_few_images_are_left_out_one_by_one_and_many_in_eight_folds():
    few, _ = evidence((32, 32))
    many, _ = evidence((33, 32))
    assert len(assign_folds(few).unique()) == 64
    assert assign_folds(many).unique().tolist() == list(range(8))


def test_folds_hold_a_fair_share_of_each_class():
    found, _ = evidence((40, 16, 9, 3))
    folds = assign_folds(found)
    for label, count in enumerate((40, 16, 9, 3)):
        sizes = torch.bincount(folds[found.labels == label], minlength=8)
        assert sizes.max() - sizes.min() <= 1, f"{count} images lie {sizes.tolist()}"


def test_the_seed_deals_the_folds():
    found, _ = evidence((40, 40))
    assert torch.equal(assign_folds(found, seed=1), assign_folds(found, seed=1))
    assert not torch.equal(assign_folds(found, seed=1), assign_folds(found, seed=2))


def test_twins_are_left_out_together():
    found, _ = evidence((3, 3))
    rows = torch.tensor([0, 1, 2, 3, 4, 5, 0, 0])
    twins = LabelledFeatures(found.features[rows], found.labels[rows], found.text, logit_scale=SCALE)
    folds = assign_folds(twins)
    assert folds[0] == folds[6] == folds[7]
    assert len(folds.unique()) == 6
    single = estimate(LPP.folds, twins.without(torch.tensor([6, 7])))[0]
    assert torch.allclose(estimate(LPP.folds, twins)[0], single, atol=1e-4)


def test_rows_that_are_not_used_get_the_head_of_all_the_others():
    found, _ = evidence((3, 3))
    fold = found.without(torch.tensor([2]))
    assert assign_folds(fold)[2] == UNUSED
    wanted = LPP.fitted(fold).logits(found.features[2:3])
    assert torch.allclose(estimate(LPP.folds, fold)[2:3], wanted, atol=1e-4)


def test_where_nothing_is_left_the_names_answer():
    found, _ = evidence((1, 1))
    alone = found.without(torch.tensor([1]))
    logits = estimate(LPP.folds, alone)
    assert torch.equal(logits[:1], ZeroShot.fitted(found).logits(found.features[:1]))


def test_the_estimate_is_near_the_truth_where_there_is_enough_to_tell():
    found, tests = evidence((24,) * 5, spread=1.1, text_noise=3.0, dim=16)
    logits = estimate(LPP.folds, found)
    told = (logits.argmax(dim=1) == found.labels).float().mean().item()
    # two shares, of 120 and 200 images: a difference of 0.13 is more than three standard errors
    assert told == pytest.approx(accuracy(LPP.fitted(found), tests), abs=0.13)


def test_one_fold_holds_nothing_out():
    found, _ = evidence((2, 2))
    with pytest.raises(ConfigError, match="folds is 1"):
        assign_folds(found, folds=1)
    assert assign_folds(found, folds=2).unique().tolist() == [0, 1]
