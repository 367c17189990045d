"""Suite `engine`: what composition and its gradient cost, and what is made with them.

All at the shapes of ViT-B/32 with T = 8 vectors and random weights. The floor is one streaming read of the
bank's bytes each way: no composition that reads every vector can be faster.

The naive formulation takes its turns in a `separate` process, where the C library keeps memory by its own
rules. It composes anew at every forward, the engine once for all forwards of a step: a step of one forward
and a step of two are timed.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, materialise
from studies.speed.composition import (
    BLOCK,
    ELEVEN_BITS,
    FORWARDS,
    PIXELS,
    TASKS,
    ComposeAnswer,
    CompositionCase,
    ExpectedAnswer,
    RandomTower,
    draw_tower,
    weights_of,
)
from studies.speed.measure import TimingComparison, compare, measure
from studies.speed.naive import NOT_WIDENED, ONE_FORWARD, WHOLE_STEP, naive_calls
from studies.speed.report import Bar, Report
from studies.speed.separate import SeparateProcess, extra_nbytes

__all__ = ["EngineFormulation", "Measured", "engine", "measure_kernel"]

BATCH = 16
FASTER = 5.0
GROWING_TASKS, GROWING_LAYERS = (4, 8, 16, 32), (3, 6, 12)
LINEAR = 1.25
"""Growth counts as linear while the cost per vector, or per parameter, rises by no more than this."""

Given = ComposeAnswer | Callable[[], ComposeAnswer] | None
"""What a timed call gives: an answer, a function that fetches it after the clock, or nothing to check."""


@dataclass(frozen=True)
class Measured:
    """The bars and notes of a part of a suite."""

    bars: list[Bar]
    notes: dict[str, str]

    def __add__(self, other: Measured) -> Measured:
        return Measured(self.bars + other.bars, self.notes | other.notes)


def engine(*, layers: int = 12, repeat: int = 9) -> Report:
    """Every measure of the suite with its bar; about fifteen minutes and 12 GB on two cores."""
    tower = draw_tower(layers=layers)
    found = Measured([], {})
    for storage in ("float32", "float16"):
        case = CompositionCase.draw(tower, storage=storage)
        found += measure_kernel(case, layers=layers, repeat=repeat)
    bank = case.bank
    del case
    for part in (_adaptation_step, _inference, _loading):
        found += part(tower, bank, repeat)
    del bank
    return Report(
        name="engine",
        what=f"ViT-B/32 shapes, {layers} layers, T = {TASKS}: compose + gradient, and steps made of them",
        ceiling="one streaming read of the bank's bytes each way",
        bars=(*found.bars, *_growth(repeat=repeat)),
        notes=found.notes,
    )


# ---- compose and gradient


class EngineFormulation:
    """A case as the engine answers it: θ is composed once, however many forwards share it."""

    def __init__(self, case: CompositionCase) -> None:
        self.case = case
        self._composer = Composer(case.theta0, case.bank)
        self._theta = self._composer.buffers()
        self._summed = {name: torch.empty_like(base) for name, base in case.theta0.items()}

    def one_forward(self) -> ComposeAnswer:
        """θ of a block, and ∂L/∂λ, for the first forward alone."""
        theta = self._composer.compose(self.case.lam, into=self._theta)
        return theta[BLOCK], self._composer.gradient(self.case.grads[0])

    def whole_step(self) -> ComposeAnswer:
        """The same for all forwards: ∂L/∂θ is added up first, which the naive formulation need not do."""
        theta = self._composer.compose(self.case.lam, into=self._theta)
        so_far, *others = self.case.grads
        for grads in others:
            for name, total in self._summed.items():
                torch.add(so_far[name], grads[name], out=total)
            so_far = self._summed
        return theta[BLOCK], self._composer.gradient(so_far)

    def in_new_memory(self) -> ComposeAnswer:
        """`one_forward` that keeps nothing: a copy of the block, because a view of it would keep all of θ."""
        theta = self._composer.compose(self.case.lam)[BLOCK].clone()
        return theta, self._composer.gradient(self.case.grads[0])


def measure_kernel(case: CompositionCase, *, layers: int, repeat: int) -> Measured:
    """Every measure of one bank, drawn for a tower of so many layers."""
    ours, expected = EngineFormulation(case), ExpectedAnswer.of(case)
    with SeparateProcess(naive_calls, layers, case.bank.storage) as naive:
        found = _one_forward(ours, naive, expected, repeat=repeat)
        found += _whole_step(ours, naive, expected, repeat=max(3, repeat // 2))
        return found + _memory(ours, naive)


def _one_forward(
    ours: EngineFormulation, naive: SeparateProcess, expected: ExpectedAnswer, *, repeat: int
) -> Measured:
    bank = ours.case.bank
    storage = bank.storage

    def is_right(given: Given) -> bool:
        return given is None or expected.matches(_fetch(given))

    def is_roughly_right(given: Given) -> bool:
        return given is not None and expected.matches(_fetch(given), tolerance=ELEVEN_BITS)

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
    notes = _as_notes(times, storage)
    if storage == "float32":
        notes["float32, what naive does"] = _naive_traffic(len(bank))
    else:
        rough = measure(lambda: naive.run(NOT_WIDENED), check=is_roughly_right, warmup=1, repeat=repeat)
        times_ours = rough.median_seconds / times.timings["ours"].median_seconds
        notes[f"{storage}, naive not widened: 11 bits, another answer"] = f"{rough}, {times_ours:.2f} × ours"
    return Measured(bars, notes)


def _whole_step(
    ours: EngineFormulation, naive: SeparateProcess, expected: ExpectedAnswer, *, repeat: int
) -> Measured:
    """A step whose batch goes through the tower in parts: naive composes for each, ours for all."""
    storage = ours.case.bank.storage

    def is_right(given: ComposeAnswer | Callable[[], ComposeAnswer]) -> bool:
        return expected.matches(_fetch(given), forwards=FORWARDS)

    candidates: dict[str, Callable[[], ComposeAnswer | Callable[[], ComposeAnswer]]] = {
        "ours": ours.whole_step,
        "naive": lambda: naive.run(WHOLE_STEP),
    }
    times = compare(candidates, check=is_right, warmup=1, repeat=repeat)
    bar = Bar(
        f"{storage}: naive / ours, a step of {FORWARDS} forwards",
        times.ratio("naive", "ours"),
        ">=",
        FASTER,
        "×",
    )
    return Measured([bar], _as_notes(times, f"{storage}, {FORWARDS} forwards"))


def _memory(ours: EngineFormulation, naive: SeparateProcess) -> Measured:
    """Peak memory of compose + gradient beyond what is there at rest, which is bank, base and ∂L/∂θ."""
    storage, base = ours.case.bank.storage, sum(w.nbytes for w in ours.case.theta0.values())
    own, other = extra_nbytes(ours.in_new_memory), naive.extra_nbytes(ONE_FORWARD)
    widened = 0 if storage == "float32" else len(ours.case.bank)
    in_mib = [f"{nbytes / 2**20:.0f} MiB" for nbytes in (own, other, (2 + widened) * base)]
    return Measured(
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


def _fetch(given: ComposeAnswer | Callable[[], ComposeAnswer]) -> ComposeAnswer:
    return given() if callable(given) else given


# ---- what is made with it


def _adaptation_step(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> Measured:
    """A whole adaptation step against an ordinary training step of the same tower on the same images."""
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(BATCH)
    encoder = ComposedEncoder(tower, Composer(weights_of(tower), bank))
    lam = encoder.composer.initial().requires_grad_()
    trained = copy.deepcopy(tower)
    coefficient_optimiser = torch.optim.AdamW([lam], lr=1e-3)
    weight_optimiser = torch.optim.AdamW(trained.parameters(), lr=1e-6)

    def adapt() -> float:
        loss = nn.functional.cross_entropy(encoder.at(lam).features(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        lam.grad = encoder.gradient()
        coefficient_optimiser.step()
        return loss.item()

    def train() -> float:
        weight_optimiser.zero_grad()
        loss = nn.functional.cross_entropy(trained(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        weight_optimiser.step()
        return loss.item()

    times = compare(
        {"adapt": adapt, "train": train}, check=math.isfinite, warmup=1, repeat=max(3, repeat // 2)
    )
    bar = Bar(
        f"adaptation step / training step, batch {BATCH}", times.ratio("adapt", "train"), "<=", 1.15, "×"
    )
    return Measured([bar], _as_notes(times, "step"))


def _inference(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> Measured:
    """The adapted tower against the base, on the same images."""
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(4))
    composer = Composer(weights_of(tower), bank)
    adapted = materialise(tower, composer.compose(composer.initial(0.1)))

    def forward_of(model: nn.Module) -> Callable[[], float]:
        @torch.no_grad()
        def forward() -> float:
            return float(model(images).norm())

        return forward

    candidates = {"adapted": forward_of(adapted), "base": forward_of(tower)}
    times = compare(candidates, check=math.isfinite, repeat=2 * repeat + 1)
    bar = Bar("adapted inference / zero-shot inference", times.ratio("adapted", "base"), "<=", 1.02, "×")
    return Measured([bar], _as_notes(times, "inference"))


def _loading(_: nn.Module, bank: TaskVectorBank, repeat: int) -> Measured:
    """Opening a bank file, checksums and all, against reading its bytes into memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bank.safetensors"
        save_bank(bank, path)
        candidates: dict[str, Callable[[], int]] = {
            "load": lambda: load_bank(path).nbytes // 2**20,
            "read": lambda: len(path.read_bytes()) // 2**20,
        }
        size = bank.nbytes // 2**20
        times = compare(candidates, check=lambda mib: abs(mib - size) <= 1, repeat=max(3, repeat // 2))
    bar = Bar("loading a bank file / reading its bytes", times.ratio("load", "read"), "<=", 1.3, "×")
    return Measured([bar], _as_notes(times, "bank file"))


def _growth(*, repeat: int) -> Iterable[Bar]:
    """Cost per vector as the bank grows, and per parameter as the tower does."""
    small = draw_tower(layers=GROWING_LAYERS[0])
    per_vector = {T: _seconds(small, tasks=T, repeat=repeat) / T for T in GROWING_TASKS}
    first, last = GROWING_TASKS[0], GROWING_TASKS[-1]
    growth = per_vector[last] / per_vector[first]
    yield Bar(f"cost per vector, T = {last} / T = {first}", growth, "<=", LINEAR, "×")
    per_number = {}
    for layers in GROWING_LAYERS:
        tower = draw_tower(layers=layers)
        numel = sum(weights.numel() for weights in weights_of(tower).values())
        per_number[layers] = _seconds(tower, tasks=GROWING_TASKS[0], repeat=repeat) / numel
    first, last = GROWING_LAYERS[0], GROWING_LAYERS[-1]
    growth = per_number[last] / per_number[first]
    yield Bar(f"cost per parameter, {last} layers / {first} layers", growth, "<=", LINEAR, "×")


def _seconds(tower: RandomTower, *, tasks: int, repeat: int) -> float:
    """Median seconds of compose + gradient for one forward."""
    case = CompositionCase.draw(tower, storage="float16", tasks=tasks, forwards=1)
    ours, expected = EngineFormulation(case), ExpectedAnswer.of(case)
    return measure(ours.one_forward, check=expected.matches, repeat=repeat).median_seconds


def _as_notes(times: TimingComparison, what: str) -> dict[str, str]:
    """The timings as notes of a report."""
    return {f"{what}, {name}": str(timing) for name, timing in times.timings.items()}
