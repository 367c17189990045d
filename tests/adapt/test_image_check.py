"""Planted mistakes are found, and clean images are left alone."""

from __future__ import annotations

import json

import torch
from torch.nn.functional import interpolate, normalize

from atlas_engine.adapt.image_check import check_images
from atlas_engine.heads.base import LabelledFeatures
from tests.heads.synthetic import make_support

CLASSES = ("otter", "seal", "walrus", "beaver")


def random_pixels(count, *, seed=0):
    """Coarse random images, no two alike."""
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))
    return (255 * interpolate(coarse, 32)).to(torch.uint8)


def check(support, pixels=None, **options):
    names = [f"{row}.jpg" for row in range(len(support.labels))]
    pixels = random_pixels(len(names)) if pixels is None else pixels
    return check_images(support, pixels, names=names, classes=CLASSES, **options)


def support_of(count=8, **kind):
    return make_support((count,) * len(CLASSES), spread=0.5, dim=64, **kind)[0]


def test_clean_images_are_not_suspected():
    found = check(support_of())
    assert (found.suspects, found.odd, found.duplicates) == ((), (), ())
    assert found.sentence == "Nothing looks wrong among 32 images of 4 classes."


def test_planted_wrong_labels_are_found_with_the_right_class_suggested():
    support = support_of()
    labels = support.labels.clone()
    labels[2], labels[17] = 3, 1
    for from_text in (True, False):
        found = check(support.with_labels(labels), from_text=from_text)
        assert {one.index for one in found.suspects} == {2, 17}
        by_index = {one.index: one for one in found.suspects}
        assert (by_index[2].label, by_index[2].suggested) == ("beaver", "otter")
        assert (by_index[17].label, by_index[17].suggested) == ("seal", "walrus")
        assert all(one.prob > 0.5 and one.influence > 0 for one in found.suspects)
    assert found.sentence == "2 labels that look wrong, among 32 images of 4 classes."


def test_an_image_of_something_else_is_odd():
    support = support_of()
    features = support.features.clone()
    away = torch.randn(64, generator=torch.Generator().manual_seed(9))
    basis = torch.linalg.qr(torch.cat([support.features[:20].T, support.text.T], dim=1)).Q
    features[5] = normalize(away - basis @ (basis.T @ away), dim=0)  # at right angles to what there is
    other = LabelledFeatures(features, support.labels, support.text, logit_scale=support.logit_scale)
    found = check(other)
    assert 5 in {one.index for one in found.odd}


def test_a_copy_in_another_class_is_a_near_duplicate_pair():
    support, pixels = support_of(), random_pixels(32)
    features = support.features.clone()
    features[30] = normalize(features[1] + 0.05 * features[30], dim=0)
    pixels[30] = (pixels[1].float() * 0.9 + 10).to(torch.uint8)  # a darker copy
    copied = LabelledFeatures(features, support.labels, support.text, logit_scale=support.logit_scale)
    (pair,) = check(copied, pixels).duplicates
    assert (pair.first, pair.second, pair.labels, pair.across_classes) == (1, 30, ("otter", "beaver"), True)
    assert "1 near-duplicate pair in two classes" in check(copied, pixels).sentence


def test_alike_features_of_unlike_images_are_no_duplicates():
    support = support_of()
    features = support.features.clone()
    features[30] = features[1]
    same = LabelledFeatures(features, support.labels, support.text, logit_scale=support.logit_scale)
    assert check(same).duplicates == ()


def test_classes_of_one_image_each_tell_nothing():
    found = check(make_support((1, 1, 1, 1))[0])
    assert (found.suspects, found.odd) == ((), ())


def test_what_was_found_is_plain_json():
    support = support_of()
    labels = support.labels.clone()
    labels[2] = 3
    facts = json.loads(json.dumps(check(support.with_labels(labels)).as_dict()))
    assert facts["suspects"][0]["image"] == "2.jpg"
    assert facts["sentence"].startswith("1 label that looks wrong")
