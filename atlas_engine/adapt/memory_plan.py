"""How much memory a run needs, item by item, and how to make it fit.

    plan = plan_run(blocks, blocks, tasks=20, storage="int4", layout=Layout(partitions=20), runs=5, batch=16,
                    activations=measure_activations(tower, images), limit_nbytes=24 * 2**30)
    plan.runs_at_once, plan.micro_batch, plan.storage, plan.tasks
    print(plan)                                    # the arithmetic

The rule: first what changes no answer, then what changes it least. Train fewer folds at once; take the batch
in smaller parts; store the bank more narrowly; use fewer vectors. A run does the first two by itself. The
storage is chosen when a bank is read (`open_bank`), because a narrow copy beside a bank that is
there would save nothing.

Counted is what is held from step to step, what autograd keeps of a batch, and a share for what the allocator
loses and kernels need for a moment. `atlas bench memory` measures a run and holds its plan against it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from atlas_engine.adapt.methods import Method
from atlas_engine.adapt.trainable_part import FrozenSplit
from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.bank.budget import narrower_storages
from atlas_engine.bank.storage import find_storage, vector_nbytes
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import ConfigError
from atlas_engine.files import human_nbytes
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.runtime import autocast, frozen_copy

__all__ = [
    "ActivationSizes",
    "MemoryItem",
    "RunPlan",
    "kept_image_nbytes",
    "measure_activations",
    "memory_to_use",
    "plan_few_shot",
    "plan_run",
]

FLOAT_NBYTES = 4  # of weights, gradients and coefficients
OPTIMISER_TENSORS = 6  # as large as λ: its values, two moments, gradient, best values and start
FREE_SHARE = 0.9  # of the memory that is free on a GPU; the rest is for its kernels
ALLOCATOR_SHARE = 0.08
"""Of all that is counted: freed memory that fits no other tensor, and what a kernel needs for a moment. It
was chosen so that the plan of `atlas bench memory` is near its peak."""
BYTE_VALUES = 256  # so many partitions of a block can be told apart by a byte


@dataclass(frozen=True)
class ActivationSizes:
    """What autograd keeps until the backward pass: of each image, and however many there are."""

    nbytes_per_image: int
    fixed_nbytes: int = 0  # weights in the narrower numbers of autocast

    def of(self, images: int) -> int:
        """Bytes for so many images."""
        return self.fixed_nbytes + images * self.nbytes_per_image


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
    batch: int
    micro_batch: int  # images in the tower at a time
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
            else "Let less of the tower move (share)"
        )
        raise ConfigError(
            f"there are {human_nbytes(self.limit_nbytes)} of memory for this run, which do not hold it even "
            f"with one training and one image at a time. {remedy}, or give more memory."
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
                f"{self.runs_at_once} of {self.runs} trainings at once, {self.micro_batch} of {self.batch} "
                f"images at a time, {tasks} of {self.given[0]} vectors in {storage}",
            ]
        )


def plan_run(
    blocks: BlockTable,
    trainable: BlockTable,
    *,
    tasks: int,
    storage: str,
    layout: Layout,
    runs: int,
    batch: int,
    activations: ActivationSizes,
    kept_nbytes: int = 0,
    limit_nbytes: int,
) -> RunPlan:
    """The first plan that fits the limit, or the smallest one where none does.

    `blocks` are those of the whole tower and `trainable` those that move. `batch` images are in the tower at
    a time, and `kept_nbytes` are kept of all images.
    """

    def plan(at_once: int, micro_batch: int, vectors: int, format_name: str) -> RunPlan:
        return RunPlan(
            items=_items(
                blocks,
                trainable,
                tasks=vectors,
                storage=format_name,
                layout=layout,
                runs=at_once,
                batch=micro_batch,
                activations=activations,
                kept_nbytes=kept_nbytes,
            ),
            limit_nbytes=limit_nbytes,
            runs=runs,
            runs_at_once=at_once,
            batch=batch,
            micro_batch=micro_batch,
            given=(tasks, storage),
            chosen=(vectors, format_name),
        )

    formats, parts = narrower_storages(storage), _halvings(batch)
    together = [(at_once, batch) for at_once in range(runs, 0, -1)] + [(1, part) for part in parts]
    tries = [(*sizes, tasks, name) for name in formats for sizes in together]
    tries += [(1, 1, vectors, formats[-1]) for vectors in range(tasks - 1, 0, -1)]
    plans = (plan(*chosen) for chosen in tries)
    return next((tried for tried in plans if tried.fits), plan(1, 1, 1, formats[-1]))


def plan_few_shot(
    backbone: Backbone,
    method: Method,
    *,
    tasks: int,
    storage: str,
    images: int,
    batch: int,
    micro_batch: int | None = None,
    views: int,
    runs: int,
    share: float | None = None,
    limit_nbytes: int,
) -> RunPlan:
    """The plan of a few-shot run with T task vectors, before there is a bank or an image.

    `share` of the tower moves, by default the method's own.
    """
    head = HEADS[method.head]
    split = FrozenSplit(
        backbone,
        share=method.share if share is None else share,
        multi_level=head.feature_level is not FeatureLevel.projected,
    )
    size = backbone.preprocessing.size
    two = split.activations(torch.zeros(2, 3, size, size))
    moving = {name for name, _ in split.tower.named_parameters()}
    blocks = block_table(backbone.visual.named_parameters())
    batch = batch if method.fresh_views else min(batch, images)
    return plan_run(
        blocks,
        BlockTable(block for block in blocks if block.name in moving),
        tasks=tasks,
        storage=storage,
        layout=method.layout,
        runs=runs,
        batch=min(batch, micro_batch or batch),
        activations=measure_activations(split.tower, two),
        kept_nbytes=kept_image_nbytes(
            images=images,
            batch=batch,
            input_nbytes=two.nbytes // 2,
            # the views that the head is fitted on, and unless they are streamed the images themselves and the
            # views to learn from
            kept_inputs=head.extra_views + (0 if method.fresh_views else 1 + views),
            pixel_nbytes=3 * size * size if backbone.device.type == "cpu" else 0,
        ),
        limit_nbytes=limit_nbytes,
    )


def kept_image_nbytes(
    *, images: int, batch: int, input_nbytes: int, kept_inputs: int, pixel_nbytes: int
) -> int:
    """Bytes of pixels, of inputs kept of each image, and of the inputs of one batch."""
    return images * (pixel_nbytes + kept_inputs * input_nbytes) + batch * input_nbytes


def measure_activations(tower: nn.Module, images: Tensor) -> ActivationSizes:
    """What autograd keeps of each image until its backward pass, from forward passes of one and of two.

    `images` (B …) are inputs of the tower. On the meta device nothing is computed, and attention is counted
    as if it were not fused, which is more than a CPU or a GPU keeps.
    """
    pair = torch.cat([images[:1], images[-1:]])
    copied = frozen_copy(tower).requires_grad_()
    tensors = [*copied.parameters(), *copied.buffers()]
    own = {_storage_of(tensor) for tensor in tensors}
    with torch.inference_mode(False), torch.enable_grad():
        one, two = (_saved_nbytes(copied, pair[:count].detach().clone(), leave_out=own) for count in (1, 2))
    return ActivationSizes(nbytes_per_image=two - one, fixed_nbytes=max(0, 2 * one - two))


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
    layout: Layout,
    runs: int,
    batch: int,
    activations: ActivationSizes,
    kept_nbytes: int,
) -> tuple[MemoryItem, ...]:
    each = vector_nbytes(blocks, find_storage(storage))
    weights, coefficients = trainable.numel, math.prod(layout.shape(tasks, trainable))
    composed = f"{runs} trainings × {_count(weights)} weights × {FLOAT_NBYTES} bytes"
    fixed, per_image = activations.fixed_nbytes, activations.nbytes_per_image
    index_nbytes = _index_nbytes(trainable, layout)
    items = (
        MemoryItem(
            "base weights",
            FLOAT_NBYTES * blocks.numel,
            f"{_count(blocks.numel)} weights × {FLOAT_NBYTES} bytes",
        ),
        MemoryItem("bank", tasks * each, f"{tasks} vectors × {human_nbytes(each)} in {storage}"),
        MemoryItem("composed weights", runs * weights * FLOAT_NBYTES, composed),
        MemoryItem("gradients", runs * weights * FLOAT_NBYTES, composed),
        MemoryItem(
            "activations",
            activations.of(batch),
            f"{batch} images × {human_nbytes(per_image)}"
            + (f" + {human_nbytes(fixed)} of narrower weights" if fixed else ""),
        ),
        MemoryItem(
            "partitions",
            index_nbytes,
            f"which of {layout.partitions} each number belongs to" if index_nbytes else "none to look up",
        ),
        MemoryItem(
            "optimiser",
            OPTIMISER_TENSORS * runs * coefficients * FLOAT_NBYTES,
            f"{OPTIMISER_TENSORS} × {runs} trainings × {coefficients} coefficients × {FLOAT_NBYTES} bytes",
        ),
        MemoryItem("images", kept_nbytes, "pixels, their views behind the frozen prefix, and a batch"),
    )
    besides = int(ALLOCATOR_SHARE * sum(item.nbytes for item in items))
    return (*items, MemoryItem("allocator", besides, f"{ALLOCATOR_SHARE:.0%} of these, lost between tensors"))


def _index_nbytes(trainable: BlockTable, layout: Layout) -> int:
    """Bytes that tell the partition of each number; of whole rows there is next to nothing to tell."""
    if layout.partitions == 1 or layout.split_by == "rows":
        return 0
    return trainable.numel * (1 if layout.partitions <= BYTE_VALUES else FLOAT_NBYTES)


def _halvings(batch: int) -> list[int]:
    """Half of the batch, half of that, and so on down to 1."""
    return [] if batch <= 1 else [batch // 2, *_halvings(batch // 2)]


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
