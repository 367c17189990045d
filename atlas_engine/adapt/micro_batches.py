"""A large batch through a small memory, for any loss.

A loss that is a mean over images can be taken in parts by whoever adds up the gradients. One that couples
its images (a contrast between views, the spread of a batch's predictions) wants all logits at once. For
those, the logits are first taken part by part without a graph, and each part is run again with one when
its gradient is known. The answer is the same to the last rounding; the price is one more forward pass.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from atlas_engine.objectives.base import LogitsFn

__all__ = ["in_micro_batches"]


def in_micro_batches(logits_fn: LogitsFn, size: int | None) -> LogitsFn:
    """The same function with at most ``size`` images in the model at a time. It must reach leaves only."""
    if size is None:
        return logits_fn

    def parted(images: Tensor) -> Tensor:
        if len(images) <= size:
            return logits_fn(images)
        if not torch.is_grad_enabled():
            return _run(logits_fn, images, size)
        anchor = torch.zeros((), device=images.device, requires_grad=True)
        logits: Tensor = _Recompute.apply(anchor, logits_fn, images, size)  # type: ignore[no-untyped-call]
        return logits

    return parted


class _Kept(Protocol):
    """What the forward leaves for the backward."""

    logits_fn: LogitsFn
    images: Tensor
    size: int


class _Recompute(torch.autograd.Function):
    """Logits without a graph; backward builds the graph of one part at a time, into the leaves' ``grad``."""

    @staticmethod
    def forward(ctx: _Kept, anchor: Tensor, logits_fn: LogitsFn, images: Tensor, size: int) -> Tensor:  # noqa: ARG004
        # `anchor` is there to require a gradient: the model's own leaves are out of autograd's sight here.
        ctx.logits_fn, ctx.images, ctx.size = logits_fn, images, size
        return _run(logits_fn, images, size)

    @staticmethod
    def backward(ctx: _Kept, *grads: Tensor) -> tuple[None, None, None, None]:
        for images, grad in zip(
            torch.split(ctx.images, ctx.size), torch.split(grads[0], ctx.size), strict=True
        ):
            with torch.enable_grad():
                logits = ctx.logits_fn(images)
            torch.autograd.backward(logits, grad)
        return None, None, None, None


def _run(logits_fn: LogitsFn, images: Tensor, size: int) -> Tensor:
    return torch.cat([logits_fn(part) for part in torch.split(images, size)])
