"""What is held out, what that tells, and what is kept for it."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.verdict import (
    PROTOTYPES,
    ZERO_SHOT,
    decide_verdict,
    estimate_accuracies,
    held_out_folds,
    labels_per_fold,
    view_agreement,
)
from atlas_engine.heads.base import UNUSED, LabelledFeatures


def evidence(labels):
    features = torch.nn.functional.normalize(
        torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(0)), dim=1
    )
    text = torch.eye(3, 8)
    return LabelledFeatures(features, torch.tensor(labels), text, logit_scale=10.0)


def logits(*right, labels):
    """Logits that are right at these places and wrong at the others."""
    said = torch.tensor([label if i in right else (label + 1) % 3 for i, label in enumerate(labels)])
    return 5.0 * torch.nn.functional.one_hot(said, 3).float()


def test_every_image_with_company_is_held_out_once_and_the_only_one_of_its_class_never():
    fold = held_out_folds(evidence([0, 0, 0, 1, 1, 2]), folds=3)
    assert fold[-1] == UNUSED
    assert sorted(set(fold[:-1].tolist())) == [0, 1]


def test_folds_are_numbered_without_gaps():
    fold = held_out_folds(evidence([0, 1, 1, 2, 2, 2]), folds=4)
    assert set(fold[1:].tolist()) == set(range(int(fold.max()) + 1))


@pytest.mark.parametrize(("count", "parts"), [(2, 2), (3, 3), (4, 4), (9, 4)])
def test_every_class_loses_as_many_as_every_other_whenever_it_loses_any(count, parts):
    labels = [label for label in range(3) for _ in range(count)]
    fold = held_out_folds(evidence(labels), folds=4)
    assert int(fold.max()) + 1 == parts
    for part in range(parts):
        lost = torch.tensor(labels)[fold == part].bincount(minlength=3)
        assert int(lost.max() - lost.min()) <= 1
        assert int(lost.min()) >= 1


def test_a_labelling_lacks_its_part_and_the_last_lacks_nothing():
    labels, fold = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 1, UNUSED])
    assert labels_per_fold(labels, fold).tolist() == [
        [UNUSED, 0, UNUSED, 1, 2],
        [0, UNUSED, 1, UNUSED, 2],
        [0, 0, 1, 1, 2],
    ]


def test_estimates_count_held_out_images_alone():
    labels = torch.tensor([0, 0, 1, 1, 2])
    fold = torch.tensor([0, 1, 0, 1, UNUSED])
    answers = {
        ZERO_SHOT: logits(0, 4, labels=labels.tolist()),
        "lpp": logits(0, 1, 2, labels=labels.tolist()),
    }
    first, second = estimate_accuracies(answers, labels, fold)
    assert (first.method, first.accuracy, first.images) == (ZERO_SHOT, 0.25, 4)
    assert (second.method, second.accuracy) == ("lpp", 0.75)
    assert second.low < 0.75 < second.high


def test_where_nothing_can_be_held_out_zero_shot_alone_is_measured():
    labels, fold = torch.tensor([0, 1, 2]), torch.full((3,), UNUSED)
    answers = {ZERO_SHOT: logits(0, labels=[0, 1, 2]), "lpp": logits(0, 1, 2, labels=[0, 1, 2])}
    (only,) = estimate_accuracies(answers, labels, fold)
    assert (only.method, only.images) == (ZERO_SHOT, 3)


def test_the_method_with_most_held_out_images_right_is_kept():
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    answers = {ZERO_SHOT: logits(0, labels=labels.tolist()), "atlas": logits(0, 1, 2, labels=labels.tolist())}
    verdict = decide_verdict(answers, labels, fold)
    assert (verdict.kept, verdict.helped) == ("atlas", True)
    assert verdict.sentence == "Adapting helped: of 4 images held out it got 3 right, zero-shot 1."


def test_zero_shot_is_kept_where_nothing_learned_is_better():
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    answers = {
        ZERO_SHOT: logits(0, 1, 2, labels=labels.tolist()),
        "atlas": logits(0, 1, labels=labels.tolist()),
    }
    verdict = decide_verdict(answers, labels, fold)
    assert (verdict.kept, verdict.helped) == (ZERO_SHOT, False)
    assert "got 3 right" in verdict.sentence


def test_a_tie_goes_to_what_was_learned_and_is_called_one():
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    right = logits(0, 1, labels=labels.tolist())
    verdict = decide_verdict({ZERO_SHOT: right, "atlas": 2.0 * right}, labels, fold)
    assert (verdict.kept, verdict.helped) == ("atlas", None)
    assert verdict.sentence.startswith("No clear difference: of 4 images held out")


def test_a_lead_of_one_image_is_not_called_help():
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    told = labels.tolist()
    verdict = decide_verdict(
        {ZERO_SHOT: logits(0, labels=told), "atlas": logits(0, 1, labels=told)}, labels, fold
    )
    assert (verdict.kept, verdict.helped) == ("atlas", None)
    assert "adapted got 2 right, zero-shot 1, and one image may be chance" in verdict.sentence


def test_where_zero_shot_gets_all_right_there_is_nothing_to_win():
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    right = logits(0, 1, 2, 3, labels=labels.tolist())
    assert decide_verdict({ZERO_SHOT: right, "atlas": 2.0 * right}, labels, fold).kept == ZERO_SHOT


@pytest.mark.parametrize(
    ("first", "last", "kept"),
    [((0, 1, 2), (0,), "first"), ((0, 1, 2), (0, 1), "last"), ((0,), (0, 1), "last")],
)
def test_of_what_was_learned_the_most_wanted_is_kept_unless_another_is_clearly_ahead(first, last, kept):
    labels, fold = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    told = labels.tolist()
    answers = {
        ZERO_SHOT: logits(labels=told),
        "first": 9 * logits(*first, labels=told),
        "last": logits(*last, labels=told),
    }
    assert decide_verdict(answers, labels, fold).kept == kept


@pytest.mark.parametrize(
    ("right", "of", "kept", "helped"),
    [
        (range(6), 6, ZERO_SHOT, False),
        (range(5), 6, "atlas", None),
        (range(2), 2, "atlas", None),  # two images are too few to tell
    ],
)
def test_with_one_image_a_class_zero_shot_stays_where_enough_images_show_that_it_is_good(
    right, of, kept, helped
):
    labels, fold = [0, 1, 2, 0, 1, 2][:of], torch.full((of,), UNUSED)
    answers = {ZERO_SHOT: logits(*right, labels=labels), "atlas": logits(*range(of), labels=labels)}
    verdict = decide_verdict(answers, torch.tensor(labels), fold, agreements={ZERO_SHOT: 0.8, "atlas": 0.8})
    assert (verdict.kept, verdict.helped) == (kept, helped)
    assert "nothing can be held out" in verdict.sentence


@pytest.mark.parametrize("start", [ZERO_SHOT, PROTOTYPES])
@pytest.mark.parametrize(
    ("head", "atlas", "kept"),
    [
        (0.9, 0.9, "atlas"),
        (0.9, 0.86, "atlas"),
        (0.9, 0.8, "head"),
        (0.7, 0.9, "atlas"),
        (0.7, 0.7, ZERO_SHOT),
    ],
)
def test_with_one_image_a_class_what_answers_otherwise_for_new_views_is_dropped(head, atlas, kept, start):
    labels, fold = [0, 1, 2], torch.full((3,), UNUSED)
    answers = {name: logits(0, 1, labels=labels) for name in (ZERO_SHOT, "head", "atlas")}
    agreements = {ZERO_SHOT: 0.8, "head": head, "atlas": atlas}
    verdict = decide_verdict(answers, torch.tensor(labels), fold, start=start, agreements=agreements)
    assert verdict.kept == kept
    if kept == ZERO_SHOT:
        assert f"(70%, and 80% before), so {start} was kept" in verdict.sentence


def test_the_agreement_is_the_share_of_views_that_get_their_images_class():
    clean, other = logits(0, 1, 2, labels=[0, 1, 2]), logits(0, labels=[0, 1, 2])
    assert view_agreement(clean, [3 * clean, other]) == pytest.approx(4 / 6)
