"""Compose and gradient: ours against the naive formulation, and against reading the bank's bytes.

The naive formulation takes its turns in a process of its own (`apart`), where nobody has told the C library
how to keep memory. It composes anew at every forward, ours once for all forwards of a step: a step of one
forward and a step of two are timed. Knows nothing of images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.compose.compose import Composer
from studies.speed.apart import Apart, extra_nbytes
from studies.speed.measure import TimingComparison, compare, measure
from studies.speed.naive import NOT_WIDENED, ONE_FORWARD, WHOLE_STEP, naive_calls
from studies.speed.question import BLOCK, ELEVEN_BITS, FORWARDS, Answer, Expected, Question
from studies.speed.report import Bar

__all__ = ["Found", "Ours", "kernel", "noted"]

FASTER = 5.0

Given = Answer | Callable[[], Answer] | None
"""What a timed call gives: an answer, the way to fetch it once the clock has stopped, or nothing to check."""


@dataclass(frozen=True)
class Found:
    """What a part of a suite hands to its report."""

    bars: list[Bar]
    notes: dict[str, str]

    def __add__(self, other: Found) -> Found:
        return Found(self.bars + other.bars, self.notes | other.notes)


class Ours:
    """A question as the engine answers it: θ is composed once, however many forwards share it."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self._composer = Composer(question.theta0, question.bank)
        self._theta = self._composer.buffers()
        self._summed = {name: torch.empty_like(base) for name, base in question.theta0.items()}

    def one_forward(self) -> Answer:
        """θ of a block, and ∂L/∂λ, for the first forward alone."""
        theta = self._composer.compose(self.question.lam, into=self._theta)
        return theta[BLOCK], self._composer.gradient(self.question.grads[0])

    def whole_step(self) -> Answer:
        """The same for all forwards: ∂L/∂θ is added up first, which the naive formulation need not do."""
        theta = self._composer.compose(self.question.lam, into=self._theta)
        so_far, *others = self.question.grads
        for grads in others:
            for name, total in self._summed.items():
                torch.add(so_far[name], grads[name], out=total)
            so_far = self._summed
        return theta[BLOCK], self._composer.gradient(so_far)

    def in_new_memory(self) -> Answer:
        """`one_forward` that keeps nothing: a copy of the block, because a view of it would keep all of θ."""
        theta = self._composer.compose(self.question.lam)[BLOCK].clone()
        return theta, self._composer.gradient(self.question.grads[0])


def kernel(question: Question, *, layers: int, repeat: int) -> Found:
    """Every measure of one bank, drawn for a tower of so many layers."""
    ours, expected = Ours(question), Expected.of(question)
    with Apart(naive_calls, layers, question.bank.storage) as naive:
        found = _one_forward(ours, naive, expected, repeat=repeat)
        found += _whole_step(ours, naive, expected, repeat=max(3, repeat // 2))
        return found + _memory(ours, naive)


def _one_forward(ours: Ours, naive: Apart, expected: Expected, *, repeat: int) -> Found:
    bank = ours.question.bank
    storage = bank.storage

    def is_right(given: Given) -> bool:
        return given is None or expected.is_met(_fetched(given))

    def is_roughly_right(given: Given) -> bool:
        return given is not None and expected.is_met(_fetched(given), tolerance=ELEVEN_BITS)

    candidates: dict[str, Callable[[], Given]] = {
        "ours": ours.one_forward,
        "naive": lambda: naive.run(ONE_FORWARD),
        "read": lambda: _read_each_way(bank),
    }
    times = compare(candidates, check=is_right, warmup=1, repeat=repeat)
    bars = [
        Bar(f"{storage}: naive / ours, compose + gradient", times.ratio("naive", "ours"), ">=", FASTER, "×"),
        Bar(f"{storage}: ours / reading the bank each way", times.ratio("ours", "read"), "<=", 1.6, "×"),
    ]
    notes = noted(times, storage)
    if storage == "float32":
        notes["float32, what naive does"] = _naive_traffic(len(bank))
    else:
        rough = measure(lambda: naive.run(NOT_WIDENED), check=is_roughly_right, warmup=1, repeat=repeat)
        times_ours = rough.median_seconds / times.timings["ours"].median_seconds
        notes[f"{storage}, naive not widened: 11 bits, another answer"] = f"{rough}, {times_ours:.2f} × ours"
    return Found(bars, notes)


def _whole_step(ours: Ours, naive: Apart, expected: Expected, *, repeat: int) -> Found:
    """A step whose batch goes through the tower in parts: naive composes for each, ours for all."""

    def is_right(given: Answer | Callable[[], Answer]) -> bool:
        return expected.is_met(_fetched(given), forwards=FORWARDS)

    candidates: dict[str, Callable[[], Answer | Callable[[], Answer]]] = {
        "ours": ours.whole_step,
        "naive": lambda: naive.run(WHOLE_STEP),
    }
    times = compare(candidates, check=is_right, warmup=1, repeat=repeat)
    what = f"{ours.question.bank.storage}, {FORWARDS} forwards"
    measured = f"{ours.question.bank.storage}: naive / ours, a step of {FORWARDS} forwards"
    return Found([Bar(measured, times.ratio("naive", "ours"), ">=", FASTER, "×")], noted(times, what))


def _memory(ours: Ours, naive: Apart) -> Found:
    """Peak memory of compose + gradient beyond what is there at rest, which is bank, base and ∂L/∂θ."""
    storage, base = ours.question.bank.storage, sum(w.nbytes for w in ours.question.theta0.values())
    own, other = extra_nbytes(ours.in_new_memory), naive.extra_nbytes(ONE_FORWARD)
    widened = 0 if storage == "float32" else len(ours.question.bank)
    in_mib = [f"{nbytes / 2**20:.0f} MiB" for nbytes in (own, other, (2 + widened) * base)]
    return Found(
        [Bar(f"{storage}: peak memory beyond bank and base, ours / naive", own / other, "<=", 0.5, "×")],
        {
            f"{storage}, peak beyond bank and base": f"ours {in_mib[0]}, naive {in_mib[1]}: its tensors need "
            f"about {in_mib[2]}, the rest is freed memory that the C library could not use again"
        },
    )


def _naive_traffic(tasks: int) -> str:
    """What the naive formulation moves beyond ours, in multiples of the base's size.

    Per vector a product is written and read, a sum read and written; on the way back ∂L/∂θ is read, a product
    written and read. Once per block base, sum and weights.
    """
    passes = (4 + 3) * tasks + 3
    return (
        f"it reads the bank each way as ours does, and moves {passes} × the base besides, but one block at a "
        "time, which a large cache makes cheap"
    )


def _read_each_way(bank: TaskVectorBank) -> None:
    """Read every byte of the bank twice, by the fastest means torch has: a product with a short vector."""
    tensors = [tensor.reshape(-1).view(torch.uint8) for p in bank.panels for tensor in p.tensors().values()]
    ones = torch.ones(max(map(len, tensors)) // 256)
    for data in tensors * 2:
        words = data[: len(data) // 256 * 256].view(torch.float32).view(64, -1)
        torch.mv(words, ones[: words.shape[1]])


def _fetched(given: Answer | Callable[[], Answer]) -> Answer:
    return given() if callable(given) else given


def noted(times: TimingComparison, what: str) -> dict[str, str]:
    """The timings as notes of a report."""
    return {f"{what}, {name}": str(timing) for name, timing in times.timings.items()}
