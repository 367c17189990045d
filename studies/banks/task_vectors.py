"""What each vector of a bank is good for: alone, and beside the others.

    for trial, fresh in run_trials(engine, donor_arms(bank), folders, settings=settings, ledger=ledger): ...
    anatomy(bank).cosine[0][1], anatomy(bank).norms[0]

A vector alone has its coefficients learned from a few shots of a target, one a block; its gain is the
accuracy above zero-shot. `all` learns with every vector together. Knows nothing of tables or figures.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.views.coefficients import layer_name
from studies.banks.trials import ALL, BankVariant
from studies.problems.few_shot import Problem

__all__ = ["BankGeometry", "bank_geometry", "single_vector_variants", "whole_bank_variant"]


@dataclass(frozen=True)
class BankGeometry:
    """How like each other the vectors are, and where in the tower each has its length."""

    tasks: tuple[str, ...]
    layers: tuple[str, ...]
    cosine: tuple[tuple[float, ...], ...]  # (T T)
    norms: tuple[tuple[float, ...], ...]  # (T layers)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON types."""
        return asdict(self)


def single_vector_variants(bank: TaskVectorBank) -> list[BankVariant]:
    """Each vector alone, and then all of them. A vector keeps its trials in whatever bank it comes."""
    alone = [_alone(bank, task, info.digest) for task, info in zip(bank.tasks, bank.infos, strict=True)]
    return [*alone, whole_bank_variant(bank)] if len(alone) > 1 else alone


def whole_bank_variant(bank: TaskVectorBank, *, name: str = ALL) -> BankVariant:
    """Every vector of the bank."""
    return BankVariant(name, len(bank), (bank.fingerprint, bank.storage), lambda _: bank)


@torch.no_grad()
def bank_geometry(bank: TaskVectorBank) -> BankGeometry:
    """Cosines and lengths, read off the bank block by block. A vector of zeros is like none, itself included.

    cosine[t, s] = ⟨τ_t, τ_s⟩ / ‖τ_t‖ ‖τ_s‖        norms[t, l] = √ Σ_{m in layer l} ‖τ[t, m]‖²
    """
    layers = sorted({block.layer for block in bank.blocks})
    gram = torch.zeros(len(layers), len(bank), len(bank), dtype=torch.float64)  # (layers T T)
    for block in bank.blocks:
        tau = bank.vectors_of(block).double().cpu()  # (T n)
        gram[layers.index(block.layer)] += tau @ tau.T
    whole = gram.sum(dim=0)
    lengths = whole.diagonal().sqrt()
    scale = torch.outer(lengths, lengths)
    cosine = torch.where(scale > 0, whole / scale.clamp_min(1e-300), 0.0)
    norms = gram.diagonal(dim1=1, dim2=2).T.sqrt()  # (T layers)
    return BankGeometry(bank.tasks, tuple(map(layer_name, layers)), _tuples(cosine), _tuples(norms))


def _alone(bank: TaskVectorBank, task: str, digest: str) -> BankVariant:
    def only(_: Problem) -> TaskVectorBank:
        return bank.select([task])

    return BankVariant(task, 1, (bank.base, task, digest, bank.storage), only)


def _tuples(matrix: torch.Tensor) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in matrix.tolist())
