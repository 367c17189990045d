"""Which task vectors to choose where only b may be used, by four strategies: `atlas eval selection`.

    variants = selection_variants(engine, bank, budgets=(1, 2, 4))
    for trial, fresh in run_trials(engine, variants, folders, settings=settings, ledger=ledger): ...

`random` draws b by the problem's seed; `features` takes the data sets that look most like the shots;
`gradient` the vectors with the largest |∂L/∂λ|; `gradient per block` chooses anew in every block. At b = T
all of them are the whole bank, which is measured once. (aTLAS, arXiv 2407.02880, section 5.)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.select import mix_by_gradient, select_by_features, select_by_gradient, select_random
from atlas_engine.compose.encoder import cosine_logits
from atlas_engine.engine import Atlas
from studies.banks.trials import ALL, BankVariant, Trial, whole_bank_variant
from studies.problems.few_shot import Problem, shot_pixels, unit_features
from studies.tables import ResultTable, distinct, seed_mean, where

__all__ = ["BUDGETS", "STRATEGIES", "base_gradient", "selection_tables", "selection_variants"]

BUDGETS = (1, 2, 4, 8)

Strategy = Callable[["_Chooser", Problem, int], TaskVectorBank]  # the number is the budget


def selection_variants(
    engine: Atlas, bank: TaskVectorBank, *, budgets: Sequence[int] = BUDGETS
) -> list[BankVariant]:
    """Every strategy at every budget below the number of vectors, and the whole bank.

    `features` is left out where a vector has no centroid: an imported checkpoint brings none.
    """
    chooser = _Chooser(engine, bank)
    small = [budget for budget in sorted(set(budgets)) if budget < len(bank)]
    known = all(info.centroid for info in bank.infos)
    names = [name for name, choose in STRATEGIES.items() if known or choose is not _by_features]
    variants = [_variant(chooser, name, budget) for budget in small for name in names]
    return [*variants, whole_bank_variant(bank)]


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
            F.normalize(features.float(), dim=-1),
            engine.head(support.classes).clone(),
            logit_scale=engine.backbone.logit_scale,
        )
        loss = F.cross_entropy(logits, torch.tensor(support.labels, device=logits.device))
        grads = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return dict(zip(leaves, grads, strict=True))


class _Chooser:
    """A bank to choose from; the gradient of the problem at hand is computed once."""

    def __init__(self, engine: Atlas, bank: TaskVectorBank) -> None:
        self.engine, self.bank = engine, bank
        self.gradient = functools.lru_cache(maxsize=1)(functools.partial(base_gradient, engine))

    def feature(self, problem: Problem) -> Tensor:
        """The mean feature (D) of the shots under the base model."""
        shots = shot_pixels(self.engine, problem)
        return unit_features(self.engine, self.engine.backbone.visual, shots).mean(dim=0)


def _random(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_random(chooser.bank, budget=budget, seed=problem.seed))


def _by_features(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_by_features(chooser.bank, chooser.feature(problem), budget=budget))


def _by_gradient(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return chooser.bank.select(select_by_gradient(chooser.bank, chooser.gradient(problem), budget=budget))


def _by_gradient_per_block(chooser: _Chooser, problem: Problem, budget: int) -> TaskVectorBank:
    return mix_by_gradient(chooser.bank, chooser.gradient(problem), budget=budget).bank


STRATEGIES: dict[str, Strategy] = {
    "random": _random,
    "features": _by_features,
    "gradient": _by_gradient,
    "gradient per block": _by_gradient_per_block,
}


def _variant(chooser: _Chooser, name: str, budget: int) -> BankVariant:
    identity = (chooser.bank.fingerprint, chooser.bank.storage, name, str(budget))
    return BankVariant(name, budget, identity, lambda problem: STRATEGIES[name](chooser, problem, budget))


# ---- the report


def selection_tables(trials: Sequence[Trial]) -> list[ResultTable]:
    """Strategies × budgets: the mean over targets and, where there are several, each target."""
    targets = distinct(trials, "target")
    each = [_selection_table(target, where(trials, target=target)) for target in targets]
    return each if len(targets) == 1 else [_selection_table("mean over targets", trials), *each]


def _selection_table(title_end: str, trials: Sequence[Trial]) -> ResultTable:
    """The whole bank is one column, the same for every strategy."""
    whole = where(trials, arm=ALL)
    budgets = sorted({trial.vectors for trial in trials if trial.arm != ALL})
    rows = [
        (
            name,
            *(seed_mean(where(trials, arm=name, vectors=b)).percent() for b in budgets),
            seed_mean(whole).percent(),
        )
        for name in STRATEGIES
        if where(trials, arm=name) or not budgets
    ]
    zero_shot = seed_mean(whole, lambda trial: trial.zero_shot)
    title = f"Accuracy in %, {whole[0].shots} shots, {title_end} (zero-shot {zero_shot.percent()})"
    return ResultTable(title, rows, ("strategy", *(f"b = {b}" for b in budgets), f"all {whole[0].vectors}"))
