"""How much memory a run needs, item by item, and how to make it fit.

    plan = plan_run(blocks, blocks, tasks=20, storage="int4", coefficients=20 * 296, runs=5, batch=16,
                    activation_nbytes=measure_activations(tower, images), limit_nbytes=24 * 2**30)
    plan.runs_at_once, plan.storage, plan.tasks
    print(plan)                                    # the arithmetic

The rule: first train fewer folds at once, which changes no answer; then store the bank more narrowly; then
use fewer vectors.

Counted is what is held from step to step, and what autograd keeps of a batch. What the backward pass, the
kernels and the allocator need for a moment comes on top: leave room for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from atlas_engine.adapt.methods import Method
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.bank.budget import narrower_storages
from atlas_engine.bank.storage import storage_named, vector_nbytes
from atlas_engine.clip.backbone import Backbone
from atlas_engine.errors import ConfigError
from atlas_engine.files import human_nbytes
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.runtime import autocast, frozen_copy

__all__ = [
    "MemoryItem",
    "RunPlan",
    "measure_activations",
    "memory_to_use",
    "plan_few_shot",
    "plan_run",
]

FLOAT_NBYTES = 4  # of weights, gradients and coefficients
OPTIMISER_TENSORS = 6  # as large as λ: its values, two moments, gradient, best values and start
FREE_SHARE = 0.9  # of the memory that is free on a GPU; the rest is for its kernels


@dataclass(frozen=True)
class MemoryItem:
    """One line of the arithmetic."""

    name: str
    nbytes: int
    arithmetic: str


@dataclass(frozen=True)
class RunPlan:
    """What a run needs, and what was chosen to make it fit."""

    items: tuple[MemoryItem, ...]
    limit_nbytes: int
    runs: int
    runs_at_once: int
    given: tuple[int, str]  # task vectors and storage as they are
    chosen: tuple[int, str]  # and as they fit

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return sum(item.nbytes for item in self.items)

    @property
    def fits(self) -> bool:
        """Whether it fits at all, with what was chosen."""
        return self.nbytes <= self.limit_nbytes

    def require_fit(self) -> None:
        """Raise unless it fits with the bank as it is."""
        if self.fits and self.chosen == self.given:
            return
        tasks, storage = self.chosen
        remedy = (
            f"Store the bank as {storage} (`atlas bank compress`)"
            + (f" and keep {tasks} of its {self.given[0]} vectors" if tasks < self.given[0] else "")
            if self.fits
            else "Let less of the tower move (share), or make the batch smaller (micro_batch)"
        )
        raise ConfigError(
            f"the memory limit is {human_nbytes(self.limit_nbytes)}, which does not hold this run even with "
            f"one training at a time. {remedy}, or give more memory."
        )

    def __str__(self) -> str:
        width = max(len(item.name) for item in self.items)
        lines = [
            f"{item.name:<{width}}  {human_nbytes(item.nbytes):>9}  {item.arithmetic}" for item in self.items
        ]
        verdict = f"{'fits' if self.fits else 'does not fit'} {human_nbytes(self.limit_nbytes)}"
        tasks, storage = self.chosen
        return "\n".join(
            [
                *lines,
                f"{'in all':<{width}}  {human_nbytes(self.nbytes):>9}  {verdict}",
                f"{self.runs_at_once} of {self.runs} trainings at once, {tasks} of {self.given[0]} vectors "
                f"in {storage}",
            ]
        )


def plan_run(
    blocks: BlockTable,
    trainable: BlockTable,
    *,
    tasks: int,
    storage: str,
    coefficients: int,
    runs: int,
    batch: int,
    activation_nbytes: int,
    kept_nbytes: int = 0,
    limit_nbytes: int,
) -> RunPlan:
    """The first plan that fits the limit, or the smallest one where none does.

    `blocks` are those of the whole tower and `trainable` those that move; `coefficients` counts λ of one
    training, `activation_nbytes` is what autograd keeps of one image, `kept_nbytes` what is kept of all.
    """

    def plan(at_once: int, vectors: int, format_name: str) -> RunPlan:
        return RunPlan(
            items=_items(
                blocks,
                trainable,
                tasks=vectors,
                storage=format_name,
                coefficients=coefficients * vectors // tasks,
                runs=at_once,
                batch=batch,
                activation_nbytes=activation_nbytes,
                kept_nbytes=kept_nbytes,
            ),
            limit_nbytes=limit_nbytes,
            runs=runs,
            runs_at_once=at_once,
            given=(tasks, storage),
            chosen=(vectors, format_name),
        )

    formats = narrower_storages(storage)
    tries = [(at_once, tasks, name) for name in formats for at_once in range(runs, 0, -1)]
    tries += [(1, vectors, formats[-1]) for vectors in range(tasks - 1, 0, -1)]
    plans = (plan(*chosen) for chosen in tries)
    return next((tried for tried in plans if tried.fits), plan(1, 1, formats[-1]))


def plan_few_shot(
    backbone: Backbone,
    method: Method,
    *,
    tasks: int,
    storage: str,
    images: int,
    batch: int,
    views: int,
    runs: int,
    limit_nbytes: int,
) -> RunPlan:
    """The plan of a few-shot run with T task vectors, before there is a bank or an image."""
    multi_level = HEADS[method.head].feature_level is not FeatureLevel.projected
    split = FrozenSplit(backbone, share=method.share, multi_level=multi_level)
    size = backbone.preprocessing.size
    one = split.activations(torch.zeros(1, 3, size, size))
    moving = {name for name, _ in split.tower.named_parameters()}
    blocks = block_table(backbone.visual.named_parameters())
    trainable = BlockTable(block for block in blocks if block.name in moving)
    kept_views = 0 if method.fresh_views else 1 + views
    return plan_run(
        blocks,
        trainable,
        tasks=tasks,
        storage=storage,
        coefficients=tasks * len(trainable) * method.layout.partitions,
        runs=runs,
        batch=batch,
        activation_nbytes=measure_activations(split.tower, one),
        kept_nbytes=images * (3 * size * size + kept_views * one.nbytes),
        limit_nbytes=limit_nbytes,
    )


def measure_activations(tower: nn.Module, images: Tensor) -> int:
    """Bytes that autograd keeps of one image until its backward pass, from one forward pass of `images`.

    `images` (B …) are inputs of the tower, one or more of them; on the meta device nothing is computed.
    """
    copied = frozen_copy(tower).requires_grad_()
    tensors = [*copied.parameters(), *copied.buffers()]
    own = {_storage_of(tensor) for tensor in tensors}
    with torch.inference_mode(False), torch.enable_grad():
        return _saved_nbytes(copied, images.detach().clone(), leave_out=own) // len(images)


def memory_to_use(device: torch.device, limit_mib: float | None) -> int | None:
    """Bytes that a run may use: the limit given, what a GPU has free, or None for no limit."""
    if limit_mib is not None:
        return int(limit_mib * 2**20)
    if device.type != "cuda":
        return None
    free, _ = torch.cuda.mem_get_info(device)
    return int(FREE_SHARE * (free + torch.cuda.memory_reserved(device)))


def _items(
    blocks: BlockTable,
    trainable: BlockTable,
    *,
    tasks: int,
    storage: str,
    coefficients: int,
    runs: int,
    batch: int,
    activation_nbytes: int,
    kept_nbytes: int,
) -> tuple[MemoryItem, ...]:
    each = vector_nbytes(blocks, storage_named(storage))
    weights = trainable.numel
    composed = f"{runs} trainings × {_count(weights)} weights × {FLOAT_NBYTES} bytes"
    return (
        MemoryItem(
            "base weights",
            FLOAT_NBYTES * blocks.numel,
            f"{_count(blocks.numel)} weights × {FLOAT_NBYTES} bytes",
        ),
        MemoryItem("bank", tasks * each, f"{tasks} vectors × {human_nbytes(each)} in {storage}"),
        MemoryItem("composed weights", runs * weights * FLOAT_NBYTES, composed),
        MemoryItem("gradients", runs * weights * FLOAT_NBYTES, composed),
        MemoryItem(
            "activations", batch * activation_nbytes, f"{batch} images × {human_nbytes(activation_nbytes)}"
        ),
        MemoryItem(
            "optimiser",
            OPTIMISER_TENSORS * runs * coefficients * FLOAT_NBYTES,
            f"{OPTIMISER_TENSORS} × {runs} trainings × {coefficients} coefficients × {FLOAT_NBYTES} bytes",
        ),
        MemoryItem("images", kept_nbytes, "pixels, and their views behind the frozen prefix"),
    )


def _count(number: int) -> str:
    return f"{number / 1e6:.1f} M"


def _saved_nbytes(forward: Callable[[Tensor], Tensor], images: Tensor, *, leave_out: set[int]) -> int:
    """Bytes of the tensors that autograd saves in a forward pass, each counted once."""
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        sizes[_storage_of(tensor)] = tensor.untyped_storage().nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor), autocast(images.device):
        features = forward(images)  # holds the graph, so that no memory is used twice
    total = sum(nbytes for key, nbytes in sizes.items() if key not in leave_out)
    del features
    return total


def _storage_of(tensor: Tensor) -> int:
    """What tells the memory of two tensors apart, also on the meta device, where addresses are 0."""
    identity: int = tensor.untyped_storage()._cdata
    return identity
