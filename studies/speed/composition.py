"""What every formulation of a composition is asked in a benchmark, and the answer it must give.

    case = CompositionCase.draw(draw_tower(layers=12), storage="float16")
    ExpectedAnswer.of(case).matches((theta, grad))

Names and shapes are those of the ViT-B/32 of CLIP (152 blocks, 87.85 M parameters) with random weights, so
that nothing is downloaded; depth can be less. All is drawn from fixed seeds, so that a separate process draws
the same case: no bank is sent across.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import Block, block_table
from atlas_engine.bank.kernels import cpu
from atlas_engine.bank.storage import assemble, find_storage
from atlas_engine.bank.vector import VectorInfo

__all__ = [
    "BLOCK",
    "ELEVEN_BITS",
    "FLOAT32_BITS",
    "FORWARDS",
    "PIXELS",
    "TASKS",
    "ComposeAnswer",
    "CompositionCase",
    "ExpectedAnswer",
    "RandomTower",
    "draw_bank",
    "draw_tower",
    "weights_of",
]

WIDTH, PATCH, PIXELS, EMBEDDING = 768, 32, 224, 512

TASKS = 8
FORWARDS = 2
"""Of a step with several: two views of its images, or two micro-batches."""

BLOCK = "proj"
"""The block whose θ is checked."""

ELEVEN_BITS = 5e-3
FLOAT32_BITS = 5e-5  # an ulp of a weight is 1e-5 of how far it moves

ComposeAnswer = tuple[Tensor, ...]
"""θ of one block, and ∂L/∂λ (T M)."""


@dataclass(frozen=True)
class CompositionCase:
    """A base, a bank for it, coefficients, and the ∂L/∂θ that comes back from each forward of a step."""

    theta0: dict[str, Tensor]
    bank: TaskVectorBank
    lam: Tensor  # (T M)
    grads: tuple[dict[str, Tensor], ...]

    @classmethod
    def draw(
        cls, tower: RandomTower, *, storage: str, tasks: int = TASKS, forwards: int = FORWARDS
    ) -> CompositionCase:
        """The case of `tasks` random vectors in this storage."""
        theta0 = weights_of(tower)
        bank = draw_bank(theta0, tasks=tasks, storage=storage)
        lam = 0.3 * torch.randn(tasks, len(theta0), generator=torch.Generator().manual_seed(2))
        return cls(theta0, bank, lam, tuple(_draw_gradients(theta0, seed=1 + v) for v in range(forwards)))


@dataclass(frozen=True)
class ExpectedAnswer:
    """The answer to a case, worked out block by block in the plainest way."""

    base: Tensor
    theta: Tensor
    grads: tuple[Tensor, ...]  # ∂L/∂λ (T M) of each forward
    tolerance: float

    @classmethod
    def of(cls, case: CompositionCase) -> ExpectedAnswer:
        """θ of `BLOCK` in float64, and ∂L/∂λ of each forward."""
        bank, lam = case.bank, case.lam[:, case.bank.blocks.index(BLOCK)]
        base = case.theta0[BLOCK].double().flatten()
        return cls(
            base=base,
            theta=base + lam.double() @ bank.vectors_of(BLOCK).double(),
            grads=tuple(_coefficient_gradient(bank, grads) for grads in case.grads),
            tolerance=FLOAT32_BITS if cpu.is_available(bank.storage) else ELEVEN_BITS,
        )

    def matches(self, answer: ComposeAnswer, *, forwards: int = 1, tolerance: float | None = None) -> bool:
        """Whether both errors are below a fraction of the largest move and of the gradient's length."""
        theta, grad = answer
        expected = torch.stack(self.grads[:forwards]).sum(0)
        theta_error = (theta.flatten().double() - self.theta).abs().max() / (
            self.theta - self.base
        ).abs().max()
        grad_error = (grad - expected).norm() / expected.norm()
        allowed = self.tolerance if tolerance is None else tolerance
        return bool(theta_error < allowed and grad_error < allowed)


def draw_tower(*, layers: int) -> RandomTower:
    """The tower whose weights every process draws alike."""
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(0)  # modules draw from the generator that all share
        return RandomTower(layers=layers).eval()


def weights_of(tower: nn.Module) -> dict[str, Tensor]:
    """θ0 by block name."""
    return {name: weights.detach() for name, weights in tower.named_parameters()}


def draw_bank(
    theta0: Mapping[str, Tensor], *, tasks: int, storage: str, base: str = "drawn"
) -> TaskVectorBank:
    """T random vectors of the size fine-tuning gives, the same for every storage."""
    table = block_table(theta0.items())

    def vectors_of(block: Block) -> Tensor:
        draw = torch.Generator().manual_seed(table.index(block))
        return torch.empty(tasks, block.numel).uniform_(-1e-3, 1e-3, generator=draw)

    panels = assemble(table, find_storage(storage), vectors_of=vectors_of, device=torch.device("cpu"))
    names = [f"task-{t + 1}" for t in range(tasks)]
    infos = [VectorInfo(digest=name) for name in names]
    return TaskVectorBank(panels, tasks=names, blocks=table, base=base, infos=infos, storage=storage)


class RandomTower(nn.Module):
    """(B 3 224 224) -> (B 512), as CLIP's ViT-B/32 does."""

    def __init__(self, *, layers: int = 12) -> None:
        super().__init__()
        tokens = (PIXELS // PATCH) ** 2 + 1
        self.class_embedding = nn.Parameter(WIDTH**-0.5 * torch.randn(WIDTH))
        self.positional_embedding = nn.Parameter(WIDTH**-0.5 * torch.randn(tokens, WIDTH))
        self.proj = nn.Parameter(WIDTH**-0.5 * torch.randn(WIDTH, EMBEDDING))
        self.conv1 = nn.Conv2d(3, WIDTH, kernel_size=PATCH, stride=PATCH, bias=False)
        self.ln_pre = nn.LayerNorm(WIDTH)
        self.transformer = nn.ModuleDict({"resblocks": nn.Sequential(*(_Layer() for _ in range(layers)))})
        self.ln_post = nn.LayerNorm(WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        """Embed images; the class token's last state is projected."""
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        first = self.class_embedding.expand(len(images), 1, -1)
        x = self.ln_pre(torch.cat([first, patches], dim=1) + self.positional_embedding)
        embedded: Tensor = self.ln_post(self.transformer["resblocks"](x)[:, 0]) @ self.proj
        return embedded


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, WIDTH // 64, batch_first=True)
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(WIDTH, 4 * WIDTH), "gelu": nn.GELU(), "c_proj": nn.Linear(4 * WIDTH, WIDTH)}
        )

    def forward(self, x: Tensor) -> Tensor:
        normed = self.ln_1(x)
        x = x + self.attn(normed, normed, normed, need_weights=False)[0]
        hidden: Tensor = self.ln_2(x)
        for layer in self.mlp.values():
            hidden = layer(hidden)
        return x + hidden


def _draw_gradients(theta0: dict[str, Tensor], *, seed: int) -> dict[str, Tensor]:
    """A ∂L/∂θ for every block, drawn; so large that the naive sum in float16 does not vanish."""
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.empty_like(w).uniform_(-1, 1, generator=draw) for n, w in theta0.items()}


def _coefficient_gradient(bank: TaskVectorBank, grads: Mapping[str, Tensor]) -> Tensor:
    """∂L/∂λ (T M) from ∂L/∂θ."""
    return torch.stack([bank.vectors_of(block) @ grads[block.name].flatten() for block in bank.blocks], dim=1)
