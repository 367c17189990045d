"""What holds for every head of the table: gradients, saving, refusals, and the same answer each time."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.bank import block_table
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.errors import ConfigError, RecipeError
from atlas_engine.heads.base import LabelledFeatures, ZeroShot
from atlas_engine.heads.registry import HEADS, UNLABELLED_HEADS, find_head
from atlas_engine.recipe import Recipe
from tests.heads.synthetic import SCALE, accuracy, make_support, take_rows


def test_the_tables_name_their_rows_and_offer_the_nearest():
    for table in (HEADS, UNLABELLED_HEADS):
        assert all(name == spec.name and spec.help and spec.paper for name, spec in table.items())
        assert all(find_head(name) is spec for name, spec in table.items())
    with pytest.raises(ConfigError, match="Did you mean 'lpp'"):
        find_head("lp++")


def test_logits_have_the_gradients_of_finite_differences(spec):
    support, (features, _) = make_support((2, 1, 3))
    head = spec.initialise(support)
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


def test_a_head_is_rebuilt_from_a_saved_recipe(spec, tmp_path):
    support, (features, _) = make_support((3, 1, 2))
    head = spec.fit_alone(support)
    blocks = block_table([("weight", torch.zeros(2, 2))])
    recipe = Recipe(
        Coefficients(torch.zeros(1, 1), Layout(), ("cars",), blocks), "tiny", "a", "b", head=head.tensors
    )
    recipe.save(tmp_path / "recipe.safetensors")
    loaded = Recipe.load(tmp_path / "recipe.safetensors").head
    again = spec.rebuild(loaded, support.text, logit_scale=SCALE)
    assert torch.equal(again.logits(features), head.logits(features))
    assert again.tensors.keys() == head.tensors.keys()


def test_tensors_of_another_shape_or_name_are_refused(spec):
    support, _ = make_support((2, 2))
    tensors = dict(spec.initialise(support).tensors)
    with pytest.raises(RecipeError, match=r"but got .*stray"):
        spec.rebuild(tensors | {"stray": torch.zeros(1)}, support.text, logit_scale=SCALE)
    for name, tensor in tensors.items():
        wrong = tensors | {name: tensor.new_zeros(7, 7)}
        with pytest.raises(RecipeError, match=r"\(7, 7\)|are \(2|is \(4"):
            spec.rebuild(wrong, support.text, logit_scale=SCALE)


def test_values_that_are_not_finite_are_refused(spec):
    support, _ = make_support((2, 2))
    tensors = dict(spec.initialise(support).tensors)
    for name, tensor in tensors.items():
        wrong = tensors | {name: torch.full_like(tensor, torch.inf)}
        with pytest.raises(RecipeError, match=f"'{name}' holds NaN"):
            spec.rebuild(wrong, support.text, logit_scale=SCALE)


HARD = {"spread": 1.1, "text_noise": 3.0, "dim": 16}  # the names are right now and then


@pytest.mark.parametrize("counts", [(8,) * 5, (16, 1, 5, 2, 8), (4, 4), (3,) * 50])
@pytest.mark.parametrize("name", ["tip", "tip-f", "lpp", "linear-probe"])
def test_images_help_where_names_are_weak(name, counts):
    support, tests = make_support(counts, **HARD)
    zero_shot = accuracy(ZeroShot.fit(support), tests)
    assert accuracy(HEADS[name].fit_alone(support), tests) > zero_shot + 0.05


def test_a_head_fitted_without_a_row_is_the_head_of_the_other_rows(spec):
    support, _ = make_support((3, 1, 2), spread=1.0)
    for row in range(6):
        rest = take_rows(support, torch.arange(6) != row)
        held_out = support.features[row : row + 1]
        logits = spec.fit_alone(support.without(torch.tensor([row]))).logits(held_out)
        wanted = spec.fit_alone(rest).logits(held_out)
        assert torch.allclose(logits, wanted, atol=1e-3)  # other sums, 50 rounds of float32


def test_the_same_support_gives_the_same_head_bit_for_bit(spec):
    support, _ = make_support((3, 3, 1))
    one, other = spec.fit_alone(support).tensors, spec.fit_alone(support).tensors
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_head_is_fitted_the_same_by_a_caller_without_gradients(spec):
    support, (features, _) = make_support((3, 3, 1))
    wanted = spec.fit_alone(support).logits(features)
    with torch.inference_mode():
        logits = spec.fit_alone(support).logits(features)
    assert torch.equal(logits, wanted)


def test_images_given_twice_leave_every_number_finite(spec):
    support, (features, labels) = make_support((2, 2))
    repeated = take_rows(support, torch.arange(4).repeat(3))
    assert torch.isfinite(spec.fit_alone(repeated).logits(features)).all()
    contradicting = LabelledFeatures(
        support.features[:1].repeat(2, 1), torch.tensor([0, 1]), support.text, logit_scale=SCALE
    )  # one image under two labels
    assert torch.isfinite(cross_entropy(spec.fit_alone(contradicting).logits(features), labels))
