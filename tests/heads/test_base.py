"""Evidence checks itself and weighs classes alike; every head in the table keeps the promises of all."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.bank import block_table
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.errors import ConfigError, RecipeError, SupportError
from atlas_engine.heads.base import UNUSED, LabelledFeatures, ZeroShot, class_balanced_weights, one_hot
from atlas_engine.heads.registry import HEADS, find_head
from atlas_engine.recipe import Recipe
from tests.heads.clouds import SCALE, accuracy, evidence


def test_every_class_weighs_the_same_however_many_images_it_has():
    labels = torch.tensor([0, 0, 0, 1, UNUSED, 3])
    weights = class_balanced_weights(one_hot(labels, 4))
    assert weights.tolist() == pytest.approx([1 / 9, 1 / 9, 1 / 9, 1 / 3, 0.0, 1 / 3])


def test_held_out_rows_are_there_but_not_used():
    found, _ = evidence((2, 3))
    fold = found.without(torch.tensor([0, 1]))
    assert fold.used.tolist() == [False, False, True, True, True]
    assert fold.counts.tolist() == [0.0, 3.0]
    assert found.counts.tolist() == [2.0, 3.0], "the evidence itself stays as it was"
    assert repr(fold) == "Evidence(3 of 5 images, 2 classes, on cpu)"


def test_evidence_made_in_inference_mode_can_be_learned_from():
    found, _ = evidence((2, 2))
    with torch.inference_mode():
        features, text = found.features * 1.0, found.text * 1.0
    again = LabelledFeatures(features, found.labels, text, logit_scale=SCALE)
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
def test_evidence_that_cannot_be_used_says_why(change, sentence):
    found, _ = evidence((2, 2))
    parts = {"features": found.features, "labels": found.labels, "text": found.text} | change
    with pytest.raises(SupportError, match=sentence):
        LabelledFeatures(**parts, logit_scale=SCALE)


def test_no_head_is_zero_shot_to_the_bit():
    found, (features, _) = evidence()
    wanted = cosine_logits(features, found.text, logit_scale=SCALE)
    assert torch.equal(ZeroShot.fitted(found).logits(features), wanted)


def test_logits_have_the_gradients_of_finite_differences(row):
    found, (features, _) = evidence((2, 1, 3))
    head = row.start(found)
    learned = {name: head.tensors[name] + 0.1 for name in head.rates}
    inputs = [features[:3], *learned.values()]

    def scalar(*values):
        logits = head.logits(values[0], dict(zip(learned, values[1:], strict=True)))
        return logits.log_softmax(dim=1)[:, 1].sum()

    leaves = [value.clone().requires_grad_() for value in inputs]
    grads = torch.autograd.grad(scalar(*leaves), leaves)
    generator = torch.Generator().manual_seed(0)
    for index, grad in enumerate(grads):
        direction = torch.randn(grad.shape, generator=generator)
        ahead, behind = (
            scalar(*inputs[:index], inputs[index] + step * direction, *inputs[index + 1 :])
            for step in (1e-2, -1e-2)
        )
        slope = (ahead - behind) / 2e-2
        # central differences in float32: an error of order step² and of 1e-6 / step
        assert (grad * direction).sum().item() == pytest.approx(slope.item(), rel=2e-2, abs=5e-3)


def test_a_head_is_rebuilt_from_a_saved_recipe(row, tmp_path):
    found, (features, _) = evidence((3, 1, 2))
    head = row.alone(found)
    blocks = block_table([("weight", torch.zeros(2, 2))])
    recipe = Recipe(
        Coefficients(torch.zeros(1, 1), Layout(), ("cars",), blocks), "tiny", "a", "b", head=head.tensors
    )
    recipe.save(tmp_path / "recipe.safetensors")
    loaded = Recipe.load(tmp_path / "recipe.safetensors").head
    again = row.rebuild(loaded, found.text, logit_scale=SCALE)
    assert torch.equal(again.logits(features), head.logits(features))
    assert again.tensors.keys() == head.tensors.keys()


def test_tensors_of_another_shape_or_name_are_refused(row):
    found, _ = evidence((2, 2))
    tensors = dict(row.start(found).tensors)
    with pytest.raises(RecipeError, match=r"but got .*stray"):
        row.rebuild(tensors | {"stray": torch.zeros(1)}, found.text, logit_scale=SCALE)
    for name, tensor in tensors.items():
        wrong = tensors | {name: tensor.new_zeros(7, 7)}
        with pytest.raises(RecipeError, match=r"\(7, 7\)|are \(2|is \(4"):
            row.rebuild(wrong, found.text, logit_scale=SCALE)


def test_values_that_are_not_numbers_are_refused(row):
    found, _ = evidence((2, 2))
    tensors = dict(row.start(found).tensors)
    for name, tensor in tensors.items():
        wrong = tensors | {name: torch.full_like(tensor, torch.inf)}
        with pytest.raises(RecipeError, match=f"'{name}' holds NaN"):
            row.rebuild(wrong, found.text, logit_scale=SCALE)


HARD = {"spread": 1.1, "text_noise": 3.0, "dim": 16}  # the names are right now and then


@pytest.mark.parametrize("counts", [(8,) * 5, (16, 1, 5, 2, 8), (4, 4), (3,) * 50])
@pytest.mark.parametrize("name", ["tip", "tip-f", "lpp", "linear-probe"])
def test_evidence_helps_where_names_are_weak(name, counts):
    found, tests = evidence(counts, **HARD)
    zero_shot = accuracy(ZeroShot.fitted(found), tests)
    assert accuracy(HEADS[name].alone(found), tests) > zero_shot + 0.05


def test_the_same_evidence_gives_the_same_head_bit_for_bit(row):
    found, _ = evidence((3, 3, 1))
    one, other = row.alone(found).tensors, row.alone(found).tensors
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_head_is_made_the_same_by_a_caller_without_gradients(row):
    found, (features, _) = evidence((3, 3, 1))
    wanted = row.alone(found).logits(features)
    with torch.inference_mode():
        logits = row.alone(found).logits(features)
    assert torch.equal(logits, wanted)


def test_images_given_twice_leave_every_number_finite(row):
    found, (features, labels) = evidence((2, 2))
    twice = LabelledFeatures(
        found.features.repeat(3, 1), found.labels.repeat(3), found.text, logit_scale=SCALE
    )
    assert torch.isfinite(row.alone(twice).logits(features)).all()
    both = LabelledFeatures(
        found.features[:1].repeat(2, 1), torch.tensor([0, 1]), found.text, logit_scale=SCALE
    )  # one picture under two labels
    assert torch.isfinite(cross_entropy(row.alone(both).logits(features), labels))


def test_the_table_names_its_rows_and_offers_the_nearest():
    assert all(name == one.name and one.help for name, one in HEADS.items())
    with pytest.raises(ConfigError, match="Did you mean 'lpp'"):
        find_head("lp++")
