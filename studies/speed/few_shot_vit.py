"""Suite `few-shot-vit`: what `auto` costs beyond its own passes through the tower, at the shapes of ViT-B/32.

2 classes × 4 images, 20 vectors in int4, random weights. The unit is what no method that trains can save: as
many forward and backward passes as `auto` makes through the trainable part of the tower, with batches of the
same sizes, and nothing else: no composition, no ∂L/∂λ, no head, no held-out images, no view of an image.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.engine import Atlas
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.runtime import frozen_copy
from studies.speed.measure import compare
from studies.speed.report import Bar, Report
from studies.speed.vit import VIT_B_32, VitShape, noise_support, open_random_vit

__all__ = ["PassCounter", "PlainPasses", "few_shot_vit"]

VECTORS, STORAGE = 20, "int4"
TO_ITS_PASSES = 8.0  # the bar


@dataclass
class PassCounter:
    """The batches that went through a tower: how many of each size, with a graph and without."""

    with_graph: Counter[int] = field(default_factory=Counter)
    without_graph: Counter[int] = field(default_factory=Counter)

    def count(self, tower: nn.Module) -> None:
        """Count the passes of this open_clip ViT, and of every copy that is made of it from now on."""

        def record(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            passes = self.with_graph if torch.is_grad_enabled() else self.without_graph
            passes[len(inputs[0])] += 1

        tower.get_submodule("ln_post").register_forward_pre_hook(record)

    def clear(self) -> None:
        """Start again from 0."""
        self.with_graph.clear()
        self.without_graph.clear()


def few_shot_vit(*, shape: VitShape = VIT_B_32, steps: int | None = None, repeat: int = 1) -> Report:
    """Time `auto` against its own passes, in turns. `steps` are the method's own unless given.

    About fifteen minutes and 8 GB on two cores with blocks split by rows, an hour with scattered entries.
    """
    engine, bank = open_random_vit(shape, vectors=VECTORS, storage=STORAGE)
    support = noise_support(shape)
    plain = PlainPasses(engine)
    passes = PassCounter()
    passes.count(engine.backbone.visual)
    config = None if steps is None else FewShotConfig(steps=steps)

    def adapt(config: FewShotConfig | None = config) -> Tensor:
        passes.clear()
        result = engine.few_shot(support, bank=bank, config=config).result()
        return torch.tensor([step.loss for step in result.history])

    adapt(FewShotConfig(steps=1))  # compiles what is compiled once
    found = compare(
        {AUTO: adapt, "plain": lambda: plain.run(passes.with_graph)},
        check=lambda numbers: len(numbers) > 0 and bool(numbers.isfinite().all()),
        warmup=0,
        repeat=repeat,
        peaks=False,
    )
    count, ratio = passes.with_graph.total(), found.ratio(AUTO, "plain")
    return Report(
        name="few-shot-vit",
        what=f"engine.few_shot of {len(support.classes)} classes, {len(support.labels)} images, "
        f"{shape.name} shapes, {VECTORS} vectors in {STORAGE}, λ split by "
        f"{find_method('few-shot', AUTO).layout.split_by}",
        ceiling=f"the {count} forward and backward passes that it makes through the trainable part, bare",
        bars=(Bar("auto, to its own forward and backward passes", ratio, "<=", TO_ITS_PASSES, "×"),),
        notes={
            AUTO: f"{found.timings[AUTO]}, as long as {count * ratio:.0f} passes",
            "plain": f"{found.timings['plain']}, {_words(passes.with_graph)}",
            "forward passes besides": _words(passes.without_graph),
        },
    )


class PlainPasses:
    """Forward and backward passes through what `auto` trains of a tower, with nothing around them."""

    def __init__(self, engine: Atlas) -> None:
        method = find_method("few-shot", AUTO)
        split = FrozenSplit(
            engine.backbone,
            share=method.share,
            multi_level=HEADS[method.head].feature_level is not FeatureLevel.projected,
        )
        self._tower = frozen_copy(split.tower).requires_grad_()
        size = engine.backbone.preprocessing.size
        images = torch.rand(1, 3, size, size, generator=torch.Generator().manual_seed(0))
        self._input = split.activations(images)

    def run(self, batches: Counter[int]) -> Tensor:
        """One number of the gradient of each block, after as many passes of each batch size."""
        for parameter in self._tower.parameters():
            parameter.grad = None
        for size, count in batches.items():
            images = self._input.expand(size, *self._input.shape[1:]).contiguous()
            for _ in range(count):
                torch.autograd.backward(self._tower(images).square().sum())
        grads = [parameter.grad for parameter in self._tower.parameters() if parameter.grad is not None]
        return torch.stack([grad.flatten()[0] for grad in grads])


def _words(batches: Counter[int]) -> str:
    """How many passes, and of how many images: `120 of 6 to 8 images`."""
    sizes = sorted(batches)
    return f"{batches.total()} of {sizes[0]} to {sizes[-1]} images" if sizes else "none"
