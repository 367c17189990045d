"""Micro-batches for losses that need the logits of the whole batch at once.

A loss that is a mean over images can be split, and the gradients of the parts added up. A loss that couples
its images (a contrast between views, the entropy of the mean prediction) cannot. For those, the forward pass
computes the logits one micro-batch at a time without a graph, and the backward pass runs each micro-batch
again with a graph. The gradient is the same up to rounding, at the price of one more forward pass.
"""

from __future__ import annotations

from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from atlas_engine.objectives.base import LogitsFn

__all__ = ["in_micro_batches"]


def in_micro_batches(logits_fn: LogitsFn, size: int | None) -> LogitsFn:
    """The same function with at most ``size`` images in the model at a time.

    Gradients go to the leaves of ``logits_fn``, and not to the images or to anything they came from.
    """
    if size is None:
        return logits_fn

    def split_logits_fn(images: Tensor) -> Tensor:
        if len(images) <= size:
            return logits_fn(images)
        if not torch.is_grad_enabled():
            return _run(logits_fn, images, size)
        anchor = torch.zeros((), device=images.device, requires_grad=True)
        logits: Tensor = _Recompute.apply(anchor, logits_fn, images, size)  # type: ignore[no-untyped-call]
        return logits

    return split_logits_fn


class _Context(Protocol):
    """What the forward pass saves for the backward pass."""

    logits_fn: LogitsFn
    images: Tensor
    size: int


class _Recompute(torch.autograd.Function):
    """Logits without a graph. Backward builds the graph of one micro-batch at a time, and adds to the leaves'
    ``grad``."""

    @staticmethod
    def forward(ctx: _Context, anchor: Tensor, logits_fn: LogitsFn, images: Tensor, size: int) -> Tensor:  # noqa: ARG004
        # `anchor` makes autograd call backward: it cannot see the leaves that `logits_fn` uses
        ctx.logits_fn, ctx.images, ctx.size = logits_fn, images, size
        return _run(logits_fn, images, size)

    @staticmethod
    def backward(ctx: _Context, *grads: Tensor) -> tuple[None, None, None, None]:
        for images, grad in zip(
            torch.split(ctx.images, ctx.size), torch.split(grads[0], ctx.size), strict=True
        ):
            with torch.enable_grad():
                logits = ctx.logits_fn(images)
            torch.autograd.backward(logits, grad)
        return None, None, None, None


def _run(logits_fn: LogitsFn, images: Float[Tensor, "B ..."], size: int) -> Float[Tensor, "B C"]:
    return torch.cat([logits_fn(part) for part in torch.split(images, size)])
