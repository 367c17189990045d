"""Batches without labels, norms as what is learned, and signs of life: on small real models."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from atlas_engine.adapt.collapse import (
    AnswerStats,
    answer_stats,
    collapse_reason,
    covers_all_classes,
    nothing_to_learn_reason,
    too_few_classes,
    too_few_images,
    uninformative_names,
)
from atlas_engine.adapt.methods import UNLABELLED_METHODS
from atlas_engine.adapt.optimise import BatchRequest
from atlas_engine.adapt.samplers import UnlabelledSampler, Views
from atlas_engine.adapt.settings import TestTimeConfig, TestTimeRunSettings, effective_test_time_config
from atlas_engine.adapt.trainable import LAM, TrainableCoefficients, TrainableNorms, norm_names
from atlas_engine.adapt.unlabelled import learn_unlabelled
from atlas_engine.objectives.ufm import UNTRUSTED, trusted_labels
from atlas_engine.runtime import generator
from tests.tiny import drain, tiny_clip, tiny_encoder, tiny_head, tiny_images

CALM = AnswerStats(classes=4.0, confidence=0.5, agreement=0.8)


def marked(count, classes=3, views=2):
    """Pictures that are their own logits, each with its number in the last column of every view."""
    rows = 4 * torch.randn(count, classes, generator=generator(count))
    rows = torch.cat([rows, torch.arange(count)[:, None].float()], dim=1)
    return Views(rows, rows.expand(views, -1, -1), rows.expand(views, -1, -1) + 0.25)


def scores(images):
    return images[:, :-1]


def asked(source, steps, *, logits_fn=scores, of=None, seed=0):
    draw = generator(seed)
    return [source(BatchRequest(index, of or steps, 0, draw, logits_fn)) for index in range(steps)]


def numbers(batch):
    return batch.images[:, -1].long()


def trusting(views, size):
    return UnlabelledSampler(views, size=size, trusting=True)


def test_a_quarter_of_a_batch_is_trusted_and_carries_its_label():
    views = marked(200)
    wanted = trusted_labels(scores(views.clean))
    for batch in asked(trusting(views, 32), 6):
        trusted = batch.labels != UNTRUSTED
        assert trusted.sum() == 8
        assert torch.equal(batch.labels[trusted], wanted[numbers(batch)[trusted]])


def test_an_objective_that_trusts_nobody_gets_all_pictures_in_turn_and_no_label():
    batches = asked(UnlabelledSampler(marked(120), size=16), 15)
    met = torch.cat([numbers(b) for b in batches]).tolist()
    assert sorted(met[:120]) == list(range(120))
    assert sorted(met[120:]) == sorted(set(met[120:]))
    assert all((b.labels == UNTRUSTED).all() for b in batches)


@pytest.mark.parametrize("count", [20, 33, 40, 100])
@pytest.mark.parametrize("trust", [False, True])
def test_no_picture_is_in_a_batch_twice_and_all_come_before_any_comes_a_third_time(count, trust):
    """Trusted pictures come more often, so only the turns of the others are counted."""
    batches = asked(UnlabelledSampler(marked(count), size=32, trusting=trust), 24)
    turns = torch.zeros(count)
    for batch in batches:
        rows = numbers(batch)
        assert len(set(rows.tolist())) == len(rows) == min(32, count)
        turns[rows[batch.labels == UNTRUSTED]] += 1
        if not trust:
            assert turns.max() - turns.min() <= 2
    assert turns.max() > 1


def test_whom_to_trust_is_asked_anew_every_epoch():
    views, calls = marked(60), []

    def turning(images):
        calls.append(len(images))
        return scores(images).roll(len(calls), dims=1)

    source, draw, told = trusting(views, 16), generator(0), []
    for index in range(12):
        batch = source(BatchRequest(index, 12, 0, draw, turning))
        wanted = trusted_labels(scores(views.clean).roll(len(calls), dims=1))
        trusted = batch.labels != UNTRUSTED
        assert trusted.sum() == 4
        assert torch.equal(batch.labels[trusted], wanted[numbers(batch)[trusted]])
        told.append(len(calls))
    assert told[0] == 1
    assert told[-1] >= 2
    assert set(calls) == {60}


def test_five_pictures_of_many_classes_trust_some_but_not_all():
    """⌊5 / 10 / 10⌋ is 0: a slice of the last 0 would trust every picture."""
    source = trusting(marked(5, classes=10), 32)
    for batch in asked(source, 3):
        assert len(batch) == 5
        assert (batch.labels != UNTRUSTED).sum() == 1


def test_one_picture_makes_a_batch_of_itself():
    (batch,) = asked(UnlabelledSampler(marked(1), size=32), 1)
    assert len(batch) == 1
    assert batch.labels.tolist() == [UNTRUSTED]


def test_progress_rises_from_nothing_towards_one():
    batches = asked(UnlabelledSampler(marked(8), size=4), 5)
    assert [round(b.progress, 2) for b in batches] == [0.0, 0.2, 0.4, 0.6, 0.8]


def test_a_strong_view_belongs_to_the_picture_of_its_row():
    for batch in asked(UnlabelledSampler(marked(30), size=8), 3):
        assert torch.equal(batch.strong, batch.images + 0.25)


def effective(objective, *, images, **given):
    return effective_test_time_config(TestTimeConfig(**given), UNLABELLED_METHODS[objective], images=images)


def test_five_epochs_are_taken_of_however_many_pictures_and_no_steps_stay_none():
    steps = [effective("entropy", images=count).steps for count in (5, 100, 1000)]
    assert steps == [16, 16, 157]
    assert effective("entropy", images=1000, steps=0).steps == 0
    assert effective("entropy", images=100, steps=400).steps == 400


def test_what_an_objective_asks_for_yields_to_what_a_person_set():
    assert effective("sar", images=8).sharpness == 0.05
    asked_for = effective("sar", images=8, sharpness=0.3, collapse_below=0.0)
    assert (asked_for.sharpness, asked_for.collapse_below) == (0.3, 0.0)
    assert effective("sar", images=8, sharpness=0.0).sharpness == 0.0, "though most objectives have none"


def tower_views(count=8):
    images = tiny_images(count)
    return Views(images, images[None], (images + 0.1)[None])


def test_every_objective_moves_coefficients_and_stays_finite():
    encoder, head = tiny_encoder(), tiny_head()
    for objective in ("ufm", "entropy", "sar", "simclr"):
        bare = objective == "simclr"
        subject = TrainableCoefficients(
            encoder,
            torch.eye(16) if bare else head,
            logit_scale=1.0 if bare else 8.0,
            start=encoder.composer.initial()[None],
        )
        steps, ending = drain(
            learn_unlabelled(
                subject,
                tower_views(),
                objective=objective,
                config=effective(objective, images=8, steps=3, epochs=0, batch=8),
            )
        )
        assert len(steps) == 3, objective
        assert ending.values[LAM].isfinite().all(), objective
        assert ending.values[LAM].any(), objective


def test_sar_gets_its_sharpness_and_its_reset():
    """A floor that the loss is below after a step or two is a collapse, and what was done is undone."""
    encoder = tiny_encoder()
    subject = TrainableCoefficients(
        encoder, tiny_head(), logit_scale=8.0, start=encoder.composer.initial()[None]
    )
    steps, ending = drain(
        learn_unlabelled(
            subject,
            tower_views(),
            objective="sar",
            config=effective("sar", images=8, steps=60, batch=8, lr=1.0),
        )
    )
    assert ending.collapsed == (True,)
    assert 0 < len(steps) < 60
    assert not ending.values[LAM].any()


def test_norm_layers_are_learned_and_the_tower_is_not_written_to():
    for kind in ("vit", "resnet"):
        tower = tiny_clip(kind).visual
        before = {name: value.clone() for name, value in tower.state_dict().items()}
        names = norm_names(tower)
        assert names
        assert all(before[name].ndim == 1 for name in names)
        subject = TrainableNorms(tower, tiny_head(), logit_scale=20.0)
        _, ending = drain(
            learn_unlabelled(
                subject,
                tower_views(),
                objective="entropy",
                config=TestTimeRunSettings(steps=2, epochs=0, batch=8),
            )
        )
        assert set(ending.values) == set(names)
        assert any(not torch.equal(ending.values[name][0], before[name]) for name in names)
        assert all(torch.equal(value, before[name]) for name, value in tower.state_dict().items())
        assert all(parameter.grad is None for parameter in tower.parameters())


def test_norms_at_their_start_are_zero_shot():
    tower, head, images = tiny_clip("vit").visual, tiny_head(), tiny_images()
    subject = TrainableNorms(tower, head, logit_scale=20.0)
    forward = subject.at({name: one.start for name, one in subject.tensors_to_learn.items()})
    wanted = 20.0 * normalize(tower(images), dim=-1) @ head.T
    torch.testing.assert_close(forward.logits_fn(0)(images).detach(), wanted.detach())


def test_vitals_of_sure_and_of_equal_answers():
    sure = 50 * torch.eye(4)
    told = answer_stats(sure, sure, sure)
    assert (round(told.classes, 3), round(told.confidence, 3), told.agreement) == (4.0, 1.0, 1.0)
    same = answer_stats(sure[:1].expand(4, -1), sure, sure.roll(1, dims=1))
    assert (round(same.classes, 3), same.agreement) == (1.0, 0.0)


def test_each_sign_of_collapse_raises_its_own_alarm():
    assert collapse_reason(CALM, CALM) == ""
    assert "sure of everything" in collapse_reason(CALM, AnswerStats(4.0, 0.99, 0.8))
    assert "sure of everything" in collapse_reason(AnswerStats(4.0, 0.8, 0.8), AnswerStats(4.0, 0.99, 0.8))
    assert collapse_reason(CALM, AnswerStats(4.0, 0.9, 0.8)) == ""
    assert "agreed less often" in collapse_reason(CALM, AnswerStats(4.0, 0.5, 0.5))
    assert "no longer numbers" in collapse_reason(CALM, AnswerStats(float("nan"), 0.5, 0.8))


def test_pictures_that_tell_nothing_of_each_other_are_found_out():
    one = normalize(torch.ones(1, 8), dim=1)
    assert "one picture alone" in nothing_to_learn_reason(one)
    assert "all 5 pictures look the same" in nothing_to_learn_reason(one.expand(5, -1))
    assert nothing_to_learn_reason(torch.cat([one, normalize(torch.arange(8.0)[None], dim=1)])) == ""


def test_answers_that_pictures_do_not_decide_are_not_built_on():
    sure = 50 * torch.eye(4).repeat(10, 1)
    assert uninformative_names(sure, complete=True) == ""
    assert "hardly tell" in uninformative_names(0.01 * sure, complete=True)
    assert "hardly tell" in uninformative_names(sure[:1].expand(40, -1), complete=True), (
        "one answer, however sure"
    )


def test_more_has_to_be_known_where_classes_are_missing():
    """At 1.41 the answers of 4 classes know 18 % of what there is."""
    faint = 1.41 * torch.eye(4).repeat(10, 1)
    assert uninformative_names(faint, complete=True) == ""
    assert "hardly tell" in uninformative_names(faint, complete=False)


def test_forty_pictures_are_enough_and_fewer_are_told_so():
    assert too_few_images(40) == ""
    assert "39 pictures are too few" in too_few_images(39)


def test_answers_that_use_a_quarter_of_the_classes_crowd():
    sure = 50 * torch.eye(8)
    assert "crowded into 2.0 of 8 classes" in too_few_classes(sure[:2].repeat(5, 1))
    assert too_few_classes(sure[:3].repeat(5, 1)) == ""
    assert too_few_classes(sure[:1, :2].repeat(5, 1)) == "", "one of two classes may be all there is"


def test_all_classes_are_there_where_the_proportions_found_are_about_alike():
    assert covers_all_classes(torch.full((10,), 0.1))
    third = torch.tensor([0.3, 0.3, 0.3, *[0.1 / 7] * 7])
    assert not covers_all_classes(third)
    assert covers_all_classes(torch.tensor([0.3, 0.2, 0.1, *[0.4 / 7] * 7]))
    assert not covers_all_classes(torch.tensor([1.0, 0.0]))
    assert not covers_all_classes(torch.tensor([0.7, 0.3])), "of two classes more is asked"
    assert covers_all_classes(torch.tensor([0.6, 0.4]))
