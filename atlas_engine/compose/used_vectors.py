"""The tower of learned coefficients, made from the vectors that they draw on and from no others.

    tower = build_tower(visual, bank, recipe.coefficients)

A run with a budget of 8 leaves λ of all but 8 vectors at 0 in every block, and λ of a frozen block at 0 for
all. θ(λ) is summed over the rest alone: a bank on disk reads no more than that, and the same 8 vectors give
the same weights, bit for bit, in a bank of 20 and in one of 500.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.select import mix_tasks
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import materialise
from atlas_engine.compose.linearised import tower_at

__all__ = ["UsedVectors", "build_tower", "find_used", "use_few"]


def build_tower(visual: nn.Module, bank: TaskVectorBank, coefficients: Coefficients) -> nn.Module:
    """The frozen tower at the coefficients, for inference; a `TangentTower` for linear vectors."""
    used = find_used(coefficients)
    if not used.any():
        return materialise(visual, {})  # λ = 0 is the base model
    base = dict(visual.named_parameters())
    if int(used.sum(dim=0).max()) < len(bank):
        part = use_few(bank, coefficients, used)
        bank, coefficients = part.bank, part.coefficients
    theta0 = {name: base[name] for name in bank.blocks.names}
    composer = Composer(theta0, bank, coefficients.layout)
    return tower_at(visual, composer, coefficients.values.to(bank.device))


def find_used(coefficients: Coefficients) -> Bool[Tensor, "T M"]:
    """Whether a vector moves a block: true where λ, or that of any of its partitions, is not 0."""
    moves = coefficients.table != 0
    return moves if moves.dim() == 2 else moves.any(dim=2)


@dataclass(frozen=True, eq=False)
class UsedVectors:
    """The vectors that move something, packed: b mixed vectors over the blocks that move, and their λ."""

    bank: TaskVectorBank
    coefficients: Coefficients


def use_few(bank: TaskVectorBank, coefficients: Coefficients, used: Bool[Tensor, "T M"]) -> UsedVectors:
    """The used vectors as b mixed ones, b the most that a block uses; within a block in the bank's order."""
    moving = used.any(dim=0)  # (M)
    names = [block.name for block, moves in zip(bank.blocks, moving.tolist(), strict=True) if moves]
    part = bank.select_blocks(names)
    table = coefficients.narrowed(part.blocks).table.cpu()
    used = used[:, moving].cpu()
    width = int(used.sum(dim=0).max())
    positions = [used[:, m].nonzero().flatten().tolist() for m in range(len(part.blocks))]
    # a block that uses fewer repeats its first vector, with λ = 0, which adds nothing
    filled = [own + [own[0]] * (width - len(own)) for own in positions]
    mixed = mix_tasks(part, filled).bank
    values = torch.stack([_own_values(table, m, own, width) for m, own in enumerate(positions)], dim=1)
    return UsedVectors(
        mixed, Coefficients(values, coefficients.narrowed(part.blocks).layout, mixed.tasks, part.blocks)
    )


def _own_values(
    table: Float[Tensor, "T M *K"], m: int, positions: list[int], width: int
) -> Float[Tensor, "width ..."]:
    """λ of one block for the vectors at these positions, filled up with zeros."""
    values = table.new_zeros(width, *table.shape[2:])
    values[: len(positions)] = table[positions, m]
    return values
