"""The scales and shifts of a tower's norm layers, learned in place of coefficients. Knows nothing of banks.

What most test-time methods tune (Tent, ICLR 2021), and so the baseline of ours. One run at a time; the tower
itself is never written to, and the statistics of batch norms stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from atlas_engine.adapt.subject import Forward, Learnable
from atlas_engine.errors import ModelError
from atlas_engine.modules import twin
from atlas_engine.objectives.base import LogitsFn

__all__ = ["NormSubject", "norm_names"]


def norm_names(tower: nn.Module) -> tuple[str, ...]:
    """The parameters of the tower's norm layers, of whatever kind, in its order."""
    norms = [name for name, module in tower.named_modules() if "Norm" in type(module).__name__]
    owned = (f"{name}.{leaf}" for name in norms for leaf in ("weight", "bias"))
    known = dict(tower.named_parameters())
    return tuple(name for name in owned if name in known)


class NormSubject:
    """The norm layers of an image tower, under a frozen head."""

    def __init__(self, tower: nn.Module, head: Tensor, *, logit_scale: float) -> None:
        """``head`` is (C D) with rows of length 1."""
        self._tower, self._head, self._logit_scale = twin(tower), head, logit_scale  # its own is frozen
        known = dict(tower.named_parameters())
        self._start = {name: known[name].detach()[None] for name in norm_names(tower)}
        if not self._start:
            raise ModelError(
                "this part of the image tower has no norm layers to learn. Let more of it move (share=1), "
                "or choose a method that learns coefficients."
            )

    @property
    def learnables(self) -> Mapping[str, Learnable]:
        """Every scale and shift. A pull to zero would switch the norms off, so there is none."""
        return {name: Learnable(value, weight_decay=0.0) for name, value in self._start.items()}

    def at(self, values: Mapping[str, Tensor]) -> Forward:
        """The tower with these norms."""
        return _NormForward(self, {name: v[0].detach().clone() for name, v in values.items()})

    def logits(self, values: Mapping[str, Tensor], images: Tensor) -> Tensor:
        """(B …) -> (B C)."""
        features = F.normalize(functional_call(self._tower, dict(values), (images,)).float(), dim=-1)
        return self._logit_scale * features @ self._head.T


class _NormForward:
    def __init__(self, subject: NormSubject, values: Mapping[str, Tensor]) -> None:
        self._subject = subject
        self._leaves = {name: value.requires_grad_() for name, value in values.items()}

    def logits_fn(self, run: int) -> LogitsFn:  # noqa: ARG002 - there is one run
        return lambda images: self._subject.logits(self._leaves, images)

    def gradients(self) -> Mapping[str, Tensor]:
        return {
            name: (torch.zeros_like(leaf) if leaf.grad is None else leaf.grad)[None]
            for name, leaf in self._leaves.items()
        }
