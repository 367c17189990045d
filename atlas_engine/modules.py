"""Twins of modules: the way to work in a model that others use at the same time. Knows no kind of model."""

from __future__ import annotations

import copy
from collections.abc import Container

from torch import Tensor, nn

__all__ = ["twin"]


def twin(module: nn.Module, *, share: bool = True, leave_out: Container[str] = ()) -> nn.Module:
    """New modules of the same structure, frozen and in eval mode, over the same tensors or over copies.

    The parameters named in `leave_out` are shared in any case: the caller puts others in their place.
    """

    def held(tensor: Tensor) -> Tensor:
        return tensor.detach() if share else tensor.detach().clone()

    stand_ins: dict[int, object] = {}
    for name, parameter in module.named_parameters():
        kept = parameter.detach() if name in leave_out else held(parameter)
        stand_ins[id(parameter)] = nn.Parameter(kept, requires_grad=False)
    stand_ins.update({id(buffer): held(buffer) for buffer in module.buffers()})
    return copy.deepcopy(module, memo=stand_ins).eval()
