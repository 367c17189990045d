"""The closed forms of the ridge head, each against a head that is fitted again without the images."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.errors import SupportError
from atlas_engine.heads import ridge
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.ridge import Ridge
from tests.heads.synthetic import make_support


def refit_without(support, rows):
    """Scores of all images by the head of the others, with the centre and the kernel scale of all."""
    whole = Ridge.fit(support)
    kept = [row for row in range(len(support.labels)) if row not in rows]
    features = support.features.double() - whole.centre
    kernel = features @ features.T / whole.kernel_scale + 1.0
    start = (support.logit_scale * support.features @ support.text.T).double().softmax(dim=1)
    gram = kernel[kept][:, kept] + ridge.STRENGTH * torch.eye(len(kept), dtype=torch.float64)
    dual = torch.linalg.solve(gram, support.one_hot.double()[kept] - start[kept])
    return (start + kernel[:, kept] @ dual).float()


def test_leave_one_out_scores_are_those_of_a_head_fitted_without_the_image():
    support, _ = make_support()
    scores = Ridge.fit(support).held_out_scores(torch.arange(20))
    for row in (0, 7, 19):
        torch.testing.assert_close(scores[row], refit_without(support, [row])[row])


def test_images_of_one_group_are_left_out_together():
    support, _ = make_support()
    groups = torch.arange(20)
    groups[[3, 11, 12]] = 3
    scores = Ridge.fit(support).held_out_scores(groups)
    again = refit_without(support, [3, 11, 12])
    torch.testing.assert_close(scores[[3, 11, 12]], again[[3, 11, 12]])


def test_an_influence_is_how_much_the_errors_of_the_others_fall():
    support, _ = make_support((3, 3, 3))
    hot, count = support.one_hot, 9

    def errors_without(also):
        return sum(
            float((refit_without(support, {row, *also})[row] - hot[row]).square().sum())
            for row in range(count)
            if row not in also
        )

    own = Ridge.fit(support).held_out_scores(torch.arange(count)) - hot
    influences = Ridge.fit(support).influences()
    for row in (0, 4):
        with_all = float(own.square().sum() - own[row].square().sum())
        assert float(influences[row]) == pytest.approx(with_all - errors_without([row]), abs=1e-4)


def test_a_wrong_label_has_the_largest_influence_and_the_worst_score():
    support, _ = make_support((8, 8, 8), spread=0.3)
    labels = support.labels.clone()
    labels[0] = 2
    head = Ridge.fit(support.with_labels(labels))
    assert int(head.influences().argmax()) == 0
    own = head.held_out_scores(torch.arange(24)).gather(1, labels.unsqueeze(1)).squeeze(1)
    assert int(own.argmin()) == 0


def test_it_answers_new_images_and_ignores_unused_rows():
    support, (features, labels) = make_support((6, 6, 6, 6, 6), spread=0.4)
    head = Ridge.fit(support)
    assert float((head.scores(features).argmax(dim=1) == labels).float().mean()) > 0.9
    part = support.with_labels(support.labels.where(torch.arange(30) % 2 == 0, UNUSED))
    alone = LabelledFeatures(
        support.features[::2], support.labels[::2], support.text, logit_scale=support.logit_scale
    )
    torch.testing.assert_close(Ridge.fit(part).scores(features), Ridge.fit(alone).scores(features))


def test_without_text_the_class_embeddings_do_not_matter():
    support, (features, _) = make_support()
    other = LabelledFeatures(
        support.features, support.labels, support.text.flip(0), logit_scale=support.logit_scale
    )
    one, two = (Ridge.fit(own, from_text=False).scores(features) for own in (support, other))
    assert torch.equal(one, two)


def test_too_many_images_are_refused(monkeypatch):
    monkeypatch.setattr(ridge, "MAX_IMAGES", 10)
    with pytest.raises(SupportError, match="at most 10 can be checked together"):
        Ridge.fit(make_support()[0])
