"""A ViT image tower with random weights and a bank of random vectors for it: benchmarks without downloads.

Names and shapes are those of the ViT-B/32 of CLIP (152 blocks, 87.85 M parameters); depth can be less. Knows
nothing of what is timed.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import Block, block_table
from atlas_engine.bank.storage import assemble, storage_named
from atlas_engine.bank.vector import VectorInfo

__all__ = ["RandomTower", "drawn_bank", "drawn_like", "weights_of"]

WIDTH, PATCH, PIXELS, EMBEDDING = 768, 32, 224, 512


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
        seen = self.ln_1(x)
        x = x + self.attn(seen, seen, seen, need_weights=False)[0]
        hidden: Tensor = self.ln_2(x)
        for step in self.mlp.values():
            hidden = step(hidden)
        return x + hidden


def weights_of(tower: nn.Module) -> dict[str, Tensor]:
    """θ0 by block name."""
    return {name: weights.detach() for name, weights in tower.named_parameters()}


def drawn_bank(theta0: dict[str, Tensor], *, tasks: int, storage: str, seed: int = 0) -> TaskVectorBank:
    """T random vectors of the size fine-tuning gives, the same for every storage."""
    table = block_table(theta0.items())

    def vectors_of(block: Block) -> Tensor:
        draw = torch.Generator().manual_seed(seed + table.index(block))
        return torch.empty(tasks, block.numel).uniform_(-1e-3, 1e-3, generator=draw)

    panels = assemble(table, storage_named(storage), vectors_of=vectors_of, device=torch.device("cpu"))
    names = [f"task-{t + 1}" for t in range(tasks)]
    infos = [VectorInfo(digest=name) for name in names]
    return TaskVectorBank(panels, tasks=names, blocks=table, base="drawn", infos=infos, storage=storage)


def drawn_like(theta0: dict[str, Tensor], *, seed: int = 1) -> dict[str, Tensor]:
    """A gradient for every block, drawn; so large that the naive sum in float16 does not vanish."""
    draw = torch.Generator().manual_seed(seed)
    return {n: torch.empty_like(w).uniform_(-1, 1, generator=draw) for n, w in theta0.items()}
