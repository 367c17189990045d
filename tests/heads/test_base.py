"""The support checks itself and weighs classes alike; zero-shot is the class names alone."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import SupportError
from atlas_engine.heads.base import UNUSED, LabelledFeatures, ZeroShot, class_balanced_weights, one_hot
from tests.heads.synthetic import SCALE, make_support


def test_every_class_weighs_the_same_however_many_images_it_has():
    labels = torch.tensor([0, 0, 0, 1, UNUSED, 3])
    weights = class_balanced_weights(one_hot(labels, 4))
    assert weights.tolist() == pytest.approx([1 / 9, 1 / 9, 1 / 9, 1 / 3, 0.0, 1 / 3])


def test_held_out_rows_are_there_but_not_used():
    support, _ = make_support((2, 3))
    fold = support.without(torch.tensor([0, 1]))
    assert fold.used.tolist() == [False, False, True, True, True]
    assert fold.counts.tolist() == [0.0, 3.0]
    assert support.counts.tolist() == [2.0, 3.0], "the support itself stays as it was"
    assert repr(fold) == "LabelledFeatures(3 of 5 images, 2 classes, on cpu)"


def test_features_made_in_inference_mode_can_be_learned_from():
    support, _ = make_support((2, 2))
    with torch.inference_mode():
        features, text = support.features * 1.0, support.text * 1.0
    again = LabelledFeatures(features, support.labels, text, logit_scale=SCALE)
    assert not again.features.is_inference()
    assert not again.text.is_inference()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"text": torch.eye(3)}, r"features are \(4, 24\) and class embeddings \(3, 3\)"),
        ({"text": torch.eye(24)[:1]}, "2 classes or more"),
        ({"labels": torch.tensor([0, 0, 1])}, "do not fit 4 features"),
        ({"labels": torch.tensor([0, 0, 1, 2])}, "0 to 1"),
        ({"labels": torch.full((4,), UNUSED)}, "nothing to learn from"),
        ({"features": torch.ones(4, 24)}, "must have length 1"),
        ({"features": torch.full((4, 24), torch.nan)}, "must have length 1"),
    ],
)
def test_a_support_that_cannot_be_used_says_why(change, sentence):
    support, _ = make_support((2, 2))
    parts = {"features": support.features, "labels": support.labels, "text": support.text} | change
    with pytest.raises(SupportError, match=sentence):
        LabelledFeatures(**parts, logit_scale=SCALE)


def test_no_head_is_zero_shot_to_the_bit():
    support, (features, _) = make_support()
    wanted = cosine_logits(features, support.text, logit_scale=SCALE)
    assert torch.equal(ZeroShot.fit(support).logits(features), wanted)
