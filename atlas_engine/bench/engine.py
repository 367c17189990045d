"""Suite `engine`: what the composition kernel costs, against the naive formulation and the memory bus.

All at the shapes of ViT-B/32 with T = 8 vectors, random weights, nothing downloaded. The floor is one
streaming read of the bank's bytes each way: no composition that reads every vector can be faster.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from atlas_engine.bank import native
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.store import load_bank, save_bank
from atlas_engine.bench.measure import Comparison, compare, measure
from atlas_engine.bench.naive import naive_compose, naive_gradient
from atlas_engine.bench.report import Bar, Report
from atlas_engine.bench.tower import PIXELS, Tower, drawn_bank, drawn_like, weights_of
from atlas_engine.compose.encoder import ComposedEncoder, materialise
from atlas_engine.compose.kernel import Composer
from atlas_engine.runtime import resident_nbytes

__all__ = ["engine"]

TASKS, BATCH = 8, 16
GROWING_TASKS, GROWING_LAYERS = (4, 8, 16, 32), (3, 6, 12)
_TOLERANCE, _ELEVEN_BITS = 5e-5, 5e-3
"""What float32 sums may differ by (an ulp of a weight is 1e-5 of how far it moves), and float16 ones."""
LINEAR = 1.25
"""Growth counts as linear while the cost per vector, or per parameter, rises by no more than this."""


def engine(*, layers: int = 12, repeat: int = 9) -> Report:
    """Every measure of the kernel with its bar; about ten minutes and 9 GB on two cores."""
    torch.manual_seed(0)
    tower = Tower(layers=layers).eval()
    bars: list[Bar] = []
    notes: dict[str, str] = {}
    for storage in ("float32", "float16"):
        bank = drawn_bank(weights_of(tower), tasks=TASKS, storage=storage)
        found = _kernel(_Case.of(tower, bank), repeat=repeat)
        bars += found.bars
        notes |= found.notes
    for part in (_step(tower, bank, repeat), _inference(tower, bank, repeat), _loading(bank, repeat)):
        bars += part.bars
        notes |= part.notes
    del bank
    bars += _growth(repeat=repeat)
    return Report(
        name="engine",
        what=f"ViT-B/32 shapes, {layers} layers, T = {TASKS}: compose + gradient, and steps made of them",
        ceiling="one streaming read of the bank's bytes each way",
        bars=tuple(bars),
        notes=notes,
    )


@dataclass(frozen=True)
class _Found:
    bars: list[Bar]
    notes: dict[str, str]


@dataclass(frozen=True)
class _Case:
    """One bank with coefficients, a gradient, and the answer that every formulation must give."""

    composer: Composer
    lam: Tensor
    grads: dict[str, Tensor]
    theta: Tensor
    grad: Tensor
    tolerance: float

    @classmethod
    def of(cls, tower: nn.Module, bank: TaskVectorBank) -> _Case:
        theta0 = weights_of(tower)
        composer, grads = Composer(theta0, bank), drawn_like(theta0)
        lam = 0.3 * torch.randn(composer.shape, generator=torch.Generator().manual_seed(2))
        table = bank.blocks
        theta = (
            theta0["proj"].double().flatten()
            + lam[:, table.index("proj")].double() @ bank.vectors_of("proj").double()
        )
        flat = ((bank.vectors_of(block), grads[block.name].flatten()) for block in table)
        grad = torch.stack([tau @ g for tau, g in flat], dim=1)
        return cls(
            composer, lam, grads, theta, grad, _TOLERANCE if native.has(bank.storage) else _ELEVEN_BITS
        )

    def is_right(self, answer: tuple[Tensor, Tensor] | None) -> bool:
        """θ of one block and the whole gradient, as sums in float32 give them."""
        return answer is None or self.is_within(self.tolerance, answer)

    def is_within(self, tolerance: float, answer: tuple[Tensor, Tensor]) -> bool:
        """Both within a fraction of the largest move and of the gradient's length."""
        moved = (self.theta - self.composer.theta0["proj"].flatten()).abs().max()
        theta_error = (answer[0].flatten().double() - self.theta).abs().max() / moved
        grad_error = (answer[1] - self.grad).norm() / self.grad.norm()
        return bool(theta_error < tolerance and grad_error < tolerance)


def _kernel(case: _Case, *, repeat: int) -> _Found:
    """Compose and gradient: ours, naive, and reading the bank twice."""
    bank, composer = case.composer.bank, case.composer
    vectors = _as_mappings(bank)
    buffers = composer.buffers()

    def ours() -> tuple[Tensor, Tensor]:
        theta = composer.compose(case.lam, into=buffers)
        return theta["proj"], composer.gradient(case.grads)

    def naive() -> tuple[Tensor, Tensor]:
        return _naive(case, vectors)

    def reads() -> None:
        for _ in range(2):
            _read(bank)

    candidates: dict[str, Callable[[], tuple[Tensor, Tensor] | None]] = {
        "ours": ours,
        "naive": naive,
        "read": reads,
    }
    times = compare(candidates, check=case.is_right, warmup=1, repeat=repeat)
    name = bank.storage
    bars = [
        Bar(f"{name}: naive / ours, compose + gradient", times.ratio("naive", "ours"), ">=", 5.0, "×"),
        Bar(f"{name}: ours / reading the bank each way", times.ratio("ours", "read"), "<=", 1.6, "×"),
    ]
    notes = _noted(times, name)
    if name == "float32":
        bars.append(_memory(case, vectors))
    else:
        rough = measure(
            lambda: _naive(case, vectors, widened=False),
            check=lambda answer: case.is_within(_ELEVEN_BITS, answer),
            warmup=1,
            repeat=repeat,
        )
        times_ours = rough.median_seconds / times.timings["ours"].median_seconds
        notes[f"{name}, naive not widened: 11 bits, another answer"] = f"{rough}, {times_ours:.2f} × ours"
    return _Found(bars, notes)


def _naive(case: _Case, vectors: list[dict[str, Tensor]], *, widened: bool = True) -> tuple[Tensor, Tensor]:
    lam = case.lam.clone().requires_grad_()
    theta = naive_compose(case.composer.theta0, vectors, lam, widened=widened)
    return theta["proj"].detach(), naive_gradient(theta, case.grads, lam)


def _memory(case: _Case, vectors: list[dict[str, Tensor]]) -> Bar:
    """Peak memory beyond what is there at rest, of one composition with its gradient."""

    def ours() -> tuple[Tensor, Tensor]:
        return case.composer.compose(case.lam)["proj"], case.composer.gradient(case.grads)

    extra = {}
    for name, fn in {"ours": ours, "naive": lambda: _naive(case, vectors)}.items():
        at_rest = _at_rest()
        peak = compare({name: fn}, check=case.is_right, warmup=1, repeat=1).timings[name].peak_nbytes
        extra[name] = float("nan") if peak is None else peak - at_rest
    return Bar(
        "peak memory beyond bank and base, ours / naive", extra["ours"] / extra["naive"], "<=", 0.5, "×"
    )


def _at_rest() -> int:
    """Bytes this process holds once what was freed has gone back to the system, where it can be told to."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return resident_nbytes() or 0


def _step(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> _Found:
    """A whole adaptation step against an ordinary training step of the same tower on the same images."""
    images = torch.randn(BATCH, 3, PIXELS, PIXELS, generator=torch.Generator().manual_seed(3))
    labels = torch.arange(BATCH)
    encoder = ComposedEncoder(tower, Composer(weights_of(tower), bank))
    lam = encoder.composer.initial().requires_grad_()
    trained = Tower(layers=len(tower.transformer["resblocks"])).eval()  # type: ignore[index]
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
    return _Found([bar], _noted(times, "step"))


def _inference(tower: nn.Module, bank: TaskVectorBank, repeat: int) -> _Found:
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
    return _Found([bar], _noted(times, "inference"))


def _loading(bank: TaskVectorBank, repeat: int) -> _Found:
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
    return _Found([bar], _noted(times, "bank file"))


def _growth(*, repeat: int) -> Iterable[Bar]:
    """Cost per vector as the bank grows, and per parameter as the tower does."""
    small = Tower(layers=GROWING_LAYERS[0]).eval()
    per_vector = {
        T: _seconds(_Case.of(small, drawn_bank(weights_of(small), tasks=T, storage="float16")), repeat) / T
        for T in GROWING_TASKS
    }
    first, last = GROWING_TASKS[0], GROWING_TASKS[-1]
    yield Bar(
        f"cost per vector, T = {last} / T = {first}", per_vector[last] / per_vector[first], "<=", LINEAR, "×"
    )
    per_number = {}
    for layers in GROWING_LAYERS:
        theta0 = weights_of(tower := Tower(layers=layers).eval())
        bank = drawn_bank(theta0, tasks=GROWING_TASKS[0], storage="float16")
        per_number[layers] = _seconds(_Case.of(tower, bank), repeat) / bank.blocks.numel
    first, last = GROWING_LAYERS[0], GROWING_LAYERS[-1]
    growth = per_number[last] / per_number[first]
    yield Bar(f"cost per parameter, {last} layers / {first} layers", growth, "<=", LINEAR, "×")


def _seconds(case: _Case, repeat: int) -> float:
    buffers = case.composer.buffers()

    def ours() -> tuple[Tensor, Tensor] | None:
        theta = case.composer.compose(case.lam, into=buffers)
        return theta["proj"], case.composer.gradient(case.grads)

    return compare({"ours": ours}, check=case.is_right, repeat=repeat).timings["ours"].median_seconds


def _read(bank: TaskVectorBank) -> None:
    """Read every byte of the bank once, by the fastest means torch has: a product with a short vector."""
    tensors = [tensor.reshape(-1).view(torch.uint8) for p in bank.panels for tensor in p.tensors().values()]
    ones = torch.ones(max(map(len, tensors)) // 256)
    for data in tensors:
        words = data[: len(data) // 256 * 256].view(torch.float32).view(64, -1)
        torch.mv(words, ones[: words.shape[1]])


def _as_mappings(bank: TaskVectorBank) -> list[dict[str, Tensor]]:
    """The bank as T plain mappings of tensors in the width it is stored in, for the naive formulation."""
    dtype = getattr(torch, bank.storage)
    blocks = [(block, bank.vectors_of(block).to(dtype)) for block in bank.blocks]
    return [{block.name: tau[t].view(block.shape) for block, tau in blocks} for t in range(len(bank.tasks))]


def _noted(times: Comparison, what: str) -> dict[str, str]:
    return {f"{what}, {key}": str(timing) for key, timing in times.timings.items()}


def _is_finite(value: float) -> bool:
    return math.isfinite(value)
