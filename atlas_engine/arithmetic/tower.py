"""The image tower at coefficients: the whole of it to measure, its late part to learn.

    whole = Whole(scene)
    held.marks(whole.logits(table, held.squares))            # at any λ (T M)
    late = Late(scene, share=0.9, start=table)               # the early blocks stay at the start
    late.subject(), late.activations(images), late.table(lam)

Knows nothing of losses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from atlas_engine.adapt.subject import ComposedSubject
from atlas_engine.arithmetic.scene import Scene
from atlas_engine.clip.stages import late_part
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.encoder import ComposedEncoder, cosine_logits, materialise
from atlas_engine.compose.kernel import Composer

__all__ = ["CHUNK", "Late", "Whole", "coefficients"]

CHUNK = 64


class Whole:
    """The whole tower at one λ after the other."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._composer = Composer(dict(scene.backbone.visual.named_parameters()), scene.bank)
        self._encoder = ComposedEncoder(scene.backbone.visual, self._composer)

    @property
    def shape(self) -> tuple[int, ...]:
        """(T M)."""
        return self._composer.shape

    def zeros(self) -> Tensor:
        """The λ of zero-shot."""
        return self._composer.initial()

    def along(self, vectors: dict[str, float]) -> Tensor:
        """λ (T M) that is one number for all blocks of each vector named, and 0 for the others."""
        table = self.zeros()
        for name, value in vectors.items():
            table[self._scene.bank.tasks.index(name)] = value
        return table

    @torch.no_grad()
    def features(self, table: Tensor, squares: Tensor) -> Tensor:
        """(N D) of length 1, for uint8 squares (N 3 S S), at λ (T M)."""
        see, composition = self._scene.backbone.as_input, self._encoder.at(table)
        return torch.cat(
            [composition.features(see(some.float() / 255)) for some in torch.split(squares, CHUNK)]
        )

    def logits(self, table: Tensor, squares: Tensor) -> Tensor:
        """(N ΣC), under the head of all tasks."""
        scale = self._scene.backbone.logit_scale
        return cosine_logits(self.features(table, squares), self._scene.head, logit_scale=scale)


class Late:
    """The tower from a cut on, whose λ is learned, above an early part that stays at its start."""

    def __init__(self, scene: Scene, *, share: float, start: Tensor) -> None:
        """`start` is λ (T M) over the whole tower."""
        self._scene, self._start = scene, start
        visual, bank = scene.backbone.visual, scene.bank
        base = dict(visual.named_parameters())
        late = None
        if 0 < share < 1:
            moved = materialise(visual, Composer(base, bank).compose(start)) if bool(start.any()) else visual
            late = late_part(moved, share=share)
        self._tower = visual if late is None else late.tower
        self._early: Callable[[Tensor], Tensor] | None = None if late is None else late.early
        names = list(base) if late is None else [name for name, _ in late.tower.named_parameters()]
        self._composer = Composer({name: base[name] for name in names}, bank.over(names))
        self._places = torch.tensor([bank.blocks.index(block) for block in self._composer.blocks])

    def subject(self) -> ComposedSubject:
        """λ of the late blocks, to be learned from the start on, one run."""
        return ComposedSubject(
            ComposedEncoder(self._tower, self._composer),
            self._scene.head,
            logit_scale=self._scene.backbone.logit_scale,
            start=self._start[:, self._places].clone()[None],
        )

    @torch.no_grad()
    def activations(self, images: Tensor) -> Tensor:
        """Images (N 3 S S) in 0 … 1 as far as the cut, or as the tower takes them where there is none."""
        parts = [self._scene.backbone.as_input(part) for part in torch.split(images, CHUNK)]
        return torch.cat(parts if self._early is None else [self._early(part) for part in parts])

    def table(self, lam: Tensor) -> Tensor:
        """λ over the whole tower (T M), from what was learned of the late blocks."""
        return self._start.index_copy(1, self._places.to(lam.device), lam)


def coefficients(scene: Scene, table: Tensor) -> Coefficients:
    """λ (T M) by name, to keep."""
    return Coefficients(table.detach().cpu(), Layout(), scene.bank.tasks, scene.bank.blocks)
