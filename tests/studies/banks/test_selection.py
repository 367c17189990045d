"""Selection under a budget: each strategy chooses what the bank's own selections choose."""

from __future__ import annotations

import itertools

import pytest
import torch

from atlas_engine.bank.select import select_by_gradient, select_random
from studies.banks.selection import STRATEGIES, base_gradient, selection_tables, selection_variants
from studies.problems.few_shot import draw_problem
from tests.studies.banks.fake_trials import fake_trial
from tests.studies.drawn_tasks import QUICK


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, seed=1)


def chosen(tiny, bank, problem, name, budget):
    (variant,) = [
        one
        for one in selection_variants(tiny, bank, budgets=[budget])
        if (one.name, one.vectors) == (name, budget)
    ]
    return variant.bank(problem)


def test_every_strategy_has_every_budget_below_all_and_all_is_there_once(tiny, bank):
    variants = selection_variants(tiny, bank, budgets=(2, 1, 8))
    assert [(one.name, one.vectors) for one in variants] == [
        *((name, budget) for budget in (1, 2) for name in STRATEGIES),
        ("all", 3),
    ]
    assert len({one.identity for one in variants}) == len(variants)


def test_the_gradient_is_that_of_the_shots_loss(tiny, problem):
    grads = base_gradient(tiny, problem)
    visual, name = tiny.backbone.visual, "ln_post.bias"
    pixels = torch.stack([torch.from_numpy(p.pixels.copy()).permute(2, 0, 1) for p in problem.support.images])
    labels, head = torch.tensor(problem.support.labels), tiny.head(problem.support.classes)

    def loss(shift):
        weights = {name: visual.get_parameter(name).double() + shift}
        with torch.no_grad():
            double = {n: p.double() for n, p in visual.named_parameters()} | weights
            images = tiny.backbone.as_input(pixels / 255).double()
            features = torch.func.functional_call(visual, double, (images,))
            units = torch.nn.functional.normalize(features, dim=-1)
            logits = tiny.backbone.logit_scale * units @ head.double().T
            return torch.nn.functional.cross_entropy(logits, labels)

    along = torch.randn(grads[name].shape, generator=torch.Generator().manual_seed(0)).double()
    step = 1e-5
    slope = (loss(step * along) - loss(-step * along)) / (2 * step)
    assert float((grads[name].double() * along).sum()) == pytest.approx(
        float(slope), rel=1e-3
    )  # float32 sums
    assert set(grads) == {block for block, _ in visual.named_parameters()}
    assert not any(p.requires_grad and p.grad is not None for p in visual.parameters())


def test_the_vector_trained_on_the_target_is_found(tiny, bank, problem):
    assert chosen(tiny, bank, problem, "gradient", 1).tasks == ("colours",)
    assert chosen(tiny, bank, problem, "features", 1).tasks == ("colours",)


def test_strategies_choose_as_the_bank_does(tiny, bank, problem):
    assert chosen(tiny, bank, problem, "random", 2).tasks == select_random(bank, budget=2, seed=problem.seed)
    grads = base_gradient(tiny, problem)
    assert chosen(tiny, bank, problem, "gradient", 2).tasks == select_by_gradient(bank, grads, budget=2)
    mixed = chosen(tiny, bank, problem, "gradient per block", 2)
    assert mixed.tasks == ("mix-1", "mix-2")
    assert mixed.infos[0].provenance["mixed from"].startswith("colours")


def test_features_are_left_out_for_a_bank_without_centroids(tiny, bank, problem):
    mixed = chosen(tiny, bank, problem, "gradient per block", 2)
    names = {variant.name for variant in selection_variants(tiny, mixed, budgets=[1])}
    assert names == {"random", "gradient", "gradient per block", "all"}


# ---- the report, by numbers worked out by hand


def test_strategies_stand_beside_each_other_for_each_budget_and_all():
    trials = [
        fake_trial(name, target, 0, 0.5 + 0.01 * budget, vectors=budget)
        for target, budget, name in itertools.product(("pets", "plants"), (1, 2), STRATEGIES)
    ] + [fake_trial("all", target, 0, 0.6, vectors=3) for target in ("pets", "plants")]
    mean, pets, plants = selection_tables(trials)
    assert "mean over targets (zero-shot 50.0)" in mean.title
    assert "pets" in pets.title
    assert "plants" in plants.title
    assert list(mean.columns) == ["strategy", "b = 1", "b = 2", "all 3"]
    assert [row[0] for row in mean.rows] == list(STRATEGIES)
    assert mean.rows[0][1:] == ("51.0", "52.0", "60.0")
    (alone,) = selection_tables([one for one in trials if one.target == "pets"])
    assert "pets" in alone.title
