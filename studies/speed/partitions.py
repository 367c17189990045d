"""Suite `partitions`: what K coefficients per block cost where one was, and what one more fold costs.

All at the shapes of ViT-B/32 with T = 8 vectors and random weights, in float32 and int4. A call is a
composition and its gradient. Blocks split by rows are held to a bar; split by entries, as the paper has it,
is timed beside them. Folds are runs side by side, each with λ and ∂L/∂θ of its own: the bank is read once
for all of them. A fold's images pass through the tower besides, which no bank can make cheaper.

Every answer is held against the formula worked out block by block:

    θ_m = θ0_m + Σ_t λ[t, m, part] τ[t, m]          ∂L/∂λ[t, m, k] = ⟨∂L/∂θ_m, τ[t, m]⟩ over part k
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from atlas_engine.bank.blocks import Block
from atlas_engine.bank.kernels import cpu
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from studies.speed.composition import (
    BLOCK,
    ELEVEN_BITS,
    FLOAT32_BITS,
    TASKS,
    ComposeAnswer,
    CompositionCase,
    ExpectedAnswer,
    draw_tower,
)
from studies.speed.engine import Measured
from studies.speed.measure import TimingComparison, compare
from studies.speed.report import Bar, Report

__all__ = ["FoldsFormulation", "measure_partitions", "partitions"]

STORAGES = ("float32", "int4")
WHOLE = Layout()
BY_ROWS, BY_ENTRIES = (Layout(partitions=20, split_by=split) for split in ("rows", "entries"))
FOLDS = 4
TO_ONE_PART, ONE_MORE_FOLD = 2.0, 0.35  # the bars


def partitions(*, layers: int = 12, repeat: int = 9) -> Report:
    """Every measure of the suite with its bar; about ten minutes and 9 GB on two cores."""
    tower = draw_tower(layers=layers)
    found = Measured([], {})
    for storage in STORAGES:
        found += measure_partitions(CompositionCase.draw(tower, storage=storage, forwards=1), repeat=repeat)
    return Report(
        name="partitions",
        what=f"ViT-B/32 shapes, {layers} layers, T = {TASKS}: compose + gradient with K = "
        f"{BY_ROWS.partitions} coefficients per block and vector, and in {FOLDS} folds",
        ceiling="K = 1, which reads the bank once each way; a fold that costs no more than its θ and ∂L/∂θ",
        bars=tuple(found.bars),
        notes=found.notes,
    )


class FoldsFormulation:
    """A case under one layout in R folds, as the engine answers it."""

    def __init__(self, case: CompositionCase, layout: Layout, *, folds: int = 1) -> None:
        self._composer = Composer(case.theta0, case.bank, layout)
        draw = torch.Generator().manual_seed(3)
        self._lam = 0.3 * torch.randn(folds, *self._composer.shape, generator=draw)
        self._theta, self._grads = self._composer.buffers(folds), self._composer.buffers(folds)
        factors = [1.0 + 0.5 * r for r in range(folds)]  # ∂L/∂θ of a fold is that of the case times this
        for name, view in self._grads.items():
            torch.stack([factor * case.grads[0][name] for factor in factors], out=view)
        self._expected = _expect(case, layout, self._lam, factors)

    def answer(self) -> list[ComposeAnswer]:
        """θ of a block, and ∂L/∂λ, of each fold."""
        theta = self._composer.compose(self._lam, into=self._theta)[BLOCK]
        return list(zip(theta, self._composer.gradient(self._grads), strict=True))

    def matches(self, answers: Sequence[ComposeAnswer]) -> bool:
        """Whether all folds have the expected answer."""
        return all(one.matches(answer) for one, answer in zip(self._expected, answers, strict=True))


def measure_partitions(case: CompositionCase, *, repeat: int) -> Measured:
    """Both ratios of one bank."""
    storage, K = case.bank.storage, BY_ROWS.partitions
    rows = f"× {K} by rows"
    formulations = {
        "K = 1": FoldsFormulation(case, WHOLE),
        rows: FoldsFormulation(case, BY_ROWS),
        f"{rows}, {FOLDS} folds": FoldsFormulation(case, BY_ROWS, folds=FOLDS),
    }
    times = _compare(formulations, repeat=repeat)
    scattered = {f"× {K} by entries": FoldsFormulation(case, BY_ENTRIES)}
    slow = _compare(scattered, repeat=1)
    more = (times.ratio(f"{rows}, {FOLDS} folds", rows) - 1) / (FOLDS - 1)
    return Measured(
        [
            Bar(
                f"{storage}: {rows}, compose + gradient, to K = 1",
                times.ratio(rows, "K = 1"),
                "<=",
                TO_ONE_PART,
                "×",
            ),
            Bar(
                f"{storage}: {rows}, compose + gradient of one more fold, to those of one run",
                more,
                "<=",
                ONE_MORE_FOLD,
                "×",
            ),
        ],
        {f"{storage}, {name}": str(one) for name, one in {**times.timings, **slow.timings}.items()},
    )


def _compare(formulations: Mapping[str, FoldsFormulation], *, repeat: int) -> TimingComparison:
    """Timings of formulations that take turns, each held against its own expected answer."""

    def call(one: FoldsFormulation) -> Callable[[], tuple[FoldsFormulation, list[ComposeAnswer]]]:
        return lambda: (one, one.answer())

    return compare(
        {name: call(one) for name, one in formulations.items()},
        check=lambda given: given[0].matches(given[1]),
        warmup=1,
        repeat=repeat,
    )


def _expect(
    case: CompositionCase, layout: Layout, lam: Tensor, factors: Sequence[float]
) -> list[ExpectedAnswer]:
    """The answer of each fold, from λ (R T M) or (R T M K) and the factor on its ∂L/∂θ."""
    bank, m = case.bank, case.bank.blocks.index(BLOCK)
    base, tau = case.theta0[BLOCK].double().flatten(), bank.vectors_of(BLOCK).double()
    part = _part_of_numbers(layout, bank.blocks[m])
    grad = torch.stack([_part_gradients(case, layout, block) for block in bank.blocks], dim=1)  # (T M K)
    grad = grad if layout.partitions > 1 else grad.squeeze(2)
    found = []
    for own, factor in zip(lam, factors, strict=True):
        weights = own[:, m].view(len(tau), -1).double()[:, part]  # (T n)
        found.append(
            ExpectedAnswer(
                base=base,
                theta=base + (weights * tau).sum(0),
                grads=(factor * grad,),
                tolerance=FLOAT32_BITS if cpu.is_available(bank.storage) else ELEVEN_BITS,
            )
        )
    return found


def _part_of_numbers(layout: Layout, block: Block) -> Tensor:
    """The part of each number of a block, (n)."""
    units = layout.unit_count(block)
    return layout.split(units).long().repeat_interleave(block.numel // units)


def _part_gradients(case: CompositionCase, layout: Layout, block: Block) -> Tensor:
    """⟨∂L/∂θ, τ⟩ over each part of a block, (T K)."""
    part, products = _part_of_numbers(layout, block), case.bank.vectors_of(block)
    products = products * case.grads[0][block.name].flatten()
    return torch.stack(
        [torch.bincount(part, weights=row, minlength=layout.partitions) for row in products.double()]
    )
