"""Suite `engine`: what the composition kernel costs, and the steps, predictions and files made with it.

All at the shapes of ViT-B/32 with T = 8 vectors, random weights, nothing downloaded. The floor is one
streaming read of the bank's bytes each way: no composition that reads every vector can be faster.
"""

from __future__ import annotations

import copy
import math
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import nn

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import load_bank, save_bank
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import ComposedEncoder, materialise
from studies.speed.kernel import Found, Ours, kernel, noted
from studies.speed.measure import compare, measure
from studies.speed.question import TASKS, Expected, Question, drawn_tower
from studies.speed.report import Bar, Report
from studies.speed.tower import PIXELS, RandomTower, weights_of

__all__ = ["engine"]

BATCH = 16
GROWING_TASKS, GROWING_LAYERS = (4, 8, 16, 32), (3, 6, 12)
LINEAR = 1.25
"""Growth counts as linear while the cost per vector, or per parameter, rises by no more than this."""


def engine(*, layers: int = 12, repeat: int = 9) -> Report:
    """Every measure of the kernel with its bar; about fifteen minutes and 12 GB on two cores."""
    tower = drawn_tower(layers=layers)
    found = Found([], {})
    for storage in ("float32", "float16"):
        found += kernel(question := Question.drawn(tower, storage=storage), layers=layers, repeat=repeat)
    bank = question.bank
    del question
    for part in (_step, _inference, _loading):
        found += part(tower, bank, repeat)
    del bank
    return Report(
        name="engine",
        what=f"ViT-B/32 shapes, {layers} layers, T = {TASKS}: compose + gradient, and steps made of them",
        ceiling="one streaming read of the bank's bytes each way",
        bars=(*found.bars, *_growth(repeat=repeat)),
        notes=found.notes,
    )


def _step(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> Found:
    """A whole adaptation step against an ordinary training step of the same tower on the same images."""
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(BATCH)
    encoder = ComposedEncoder(tower, Composer(weights_of(tower), bank))
    lam = encoder.composer.initial().requires_grad_()
    trained = copy.deepcopy(tower)
    light = torch.optim.AdamW([lam], lr=1e-3)
    full = torch.optim.AdamW(trained.parameters(), lr=1e-6)

    def adapt() -> float:
        loss = nn.functional.cross_entropy(encoder.at(lam).features(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        lam.grad = encoder.gradient()
        light.step()
        return loss.item()

    def train() -> float:
        full.zero_grad()
        loss = nn.functional.cross_entropy(trained(images), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        full.step()
        return loss.item()

    times = compare({"adapt": adapt, "train": train}, check=_is_finite, warmup=1, repeat=max(3, repeat // 2))
    bar = Bar(
        f"adaptation step / training step, batch {BATCH}", times.ratio("adapt", "train"), "<=", 1.15, "×"
    )
    return Found([bar], noted(times, "step"))


def _inference(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> Found:
    """The adapted tower against the base, on the same images."""
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(4))
    composer = Composer(weights_of(tower), bank)
    adapted = materialise(tower, composer.compose(composer.initial(0.1)))

    def run(model: nn.Module) -> Callable[[], float]:
        @torch.no_grad()
        def forward() -> float:
            return float(model(images).norm())

        return forward

    times = compare({"adapted": run(adapted), "base": run(tower)}, check=_is_finite, repeat=2 * repeat + 1)
    bar = Bar("adapted inference / zero-shot inference", times.ratio("adapted", "base"), "<=", 1.02, "×")
    return Found([bar], noted(times, "inference"))


def _loading(_: nn.Module, bank: TaskVectorBank, repeat: int) -> Found:
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
    return Found([bar], noted(times, "bank file"))


def _growth(*, repeat: int) -> Iterable[Bar]:
    """Cost per vector as the bank grows, and per parameter as the tower does."""
    small = drawn_tower(layers=GROWING_LAYERS[0])
    per_vector = {T: _seconds(small, tasks=T, repeat=repeat) / T for T in GROWING_TASKS}
    first, last = GROWING_TASKS[0], GROWING_TASKS[-1]
    yield Bar(
        f"cost per vector, T = {last} / T = {first}", per_vector[last] / per_vector[first], "<=", LINEAR, "×"
    )
    per_number = {}
    for layers in GROWING_LAYERS:
        tower = drawn_tower(layers=layers)
        numel = sum(weights.numel() for weights in weights_of(tower).values())
        per_number[layers] = _seconds(tower, tasks=GROWING_TASKS[0], repeat=repeat) / numel
    first, last = GROWING_LAYERS[0], GROWING_LAYERS[-1]
    growth = per_number[last] / per_number[first]
    yield Bar(f"cost per parameter, {last} layers / {first} layers", growth, "<=", LINEAR, "×")


def _seconds(tower: RandomTower, *, tasks: int, repeat: int) -> float:
    question = Question.drawn(tower, storage="float16", tasks=tasks, forwards=1)
    ours, expected = Ours(question), Expected.of(question)
    return measure(ours.one_forward, check=expected.is_met, repeat=repeat).median_seconds


def _is_finite(value: float) -> bool:
    return math.isfinite(value)
