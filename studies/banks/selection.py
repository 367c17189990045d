"""Which vectors to choose when only b may be used: four strategies, on the same problems.

    for trial, fresh in run_trials(engine, selection_arms(engine, bank), folders, settings=…, ledger=…): ...

`random` draws b by the problem's seed; `features` takes the data sets that look most like the shots;
`gradient` the vectors with the largest |∂L/∂λ|; `gradient per block` chooses anew in every block. All of
them at b = T are the whole bank, which is measured once. (aTLAS, arXiv 2407.02880, section 5.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.select import mix_by_gradient, select_by_features, select_by_gradient, select_random
from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.engine import Atlas
from studies.banks.task_vectors import whole_bank_variant
from studies.banks.trials import BankVariant
from studies.problems.few_shot import Problem, shot_pixels, unit_features

__all__ = ["BUDGETS", "STRATEGIES", "base_gradient", "selection_variants"]

BUDGETS = (1, 2, 4, 8)

Choice = Callable[["_Chooser", Problem, int], TaskVectorBank]


def selection_variants(engine: Atlas, bank: TaskVectorBank, *, budgets: Sequence[int] = BUDGETS) -> list[BankVariant]:
    """Every strategy at every budget below the number of vectors, and the whole bank."""
    chooser = _Chooser(engine, bank)
    small = [budget for budget in sorted(set(budgets)) if budget < len(bank)]
    arms = [_arm(chooser, name, budget) for budget in small for name in STRATEGIES]
    return [*arms, whole_bank_variant(bank)]


def base_gradient(engine: Atlas, problem: Problem) -> Mapping[str, Tensor]:
    """∂L/∂θ at the base model by block name, for the cross-entropy of the shots as they are."""
    leaves = {
        name: weights.detach().clone().requires_grad_()
        for name, weights in engine.backbone.visual.named_parameters()
    }
    support = problem.support
    with torch.enable_grad():
        images = engine.backbone.as_input(shot_pixels(engine, problem).float() / 255)
        features = functional_call(engine.backbone.visual, leaves, (images,))
        logits = cosine_logits(
            torch.nn.functional.normalize(features.float(), dim=-1),
            engine.head(support.classes).clone(),
            logit_scale=engine.backbone.logit_scale,
        )
        labels = torch.tensor(support.labels, device=logits.device)
        grads = torch.autograd.grad(
            torch.nn.functional.cross_entropy(logits, labels), list(leaves.values()), materialize_grads=True
        )
    return dict(zip(leaves, grads, strict=True))


class _Chooser:
    """A bank to choose from, with what choosing needs of the problem at hand computed once."""

    def __init__(self, engine: Atlas, bank: TaskVectorBank) -> None:
        self.engine, self.bank = engine, bank
        self.gradient = functools.lru_cache(maxsize=1)(functools.partial(base_gradient, engine))

    def feature(self, problem: Problem) -> Tensor:
        """The mean feature of the shots under the base model."""
        shots = shot_pixels(self.engine, problem)
        return unit_features(self.engine, self.engine.backbone.visual, shots).mean(dim=0)


def _random(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_random(chooser.bank, budget=budget, seed=problem.seed))


def _features(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_by_features(chooser.bank, chooser.feature(problem), budget=budget))


def _gradient(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_by_gradient(chooser.bank, chooser.gradient(problem), budget=budget))


def _per_block(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return mix_by_gradient(chooser.bank, chooser.gradient(problem), budget=budget).bank


STRATEGIES: dict[str, Choice] = {
    "random": _random,
    "features": _features,
    "gradient": _gradient,
    "gradient per block": _per_block,
}


def _arm(chooser: _Chooser, name: str, budget: int) -> BankVariant:
    identity = (chooser.bank.fingerprint, chooser.bank.storage, name, str(budget))
    return BankVariant(name, budget, identity, lambda problem: STRATEGIES[name](chooser, problem, budget))
