"""A tower that also tells what it saw before it put it into words. Knows nothing of heads or of banks.

    h = what the tower sees,   f = project(h)                 # what it can say in the space of sentences
    z = [ f / |f|,  r · h / |h| ] / √(1 + r²)                 # of length 1

A projection keeps what sentences need and drops the rest, some of which tells a user's classes apart. Names
of classes have zeros where h is (`wide_text`), so z changes no comparison with words but its length, which
`wide_scale` gives back. Parameters keep their names. Towers that mix seeing and projecting stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.modules import twin

__all__ = ["wide_scale", "wide_text", "widen"]

SEEN = 2.0
"""r: how long what was seen is, beside what is said. Of 0.7 to 3, chosen on the sets of the bank."""


def widen(visual: nn.Module) -> nn.Module:
    """A twin of the tower that gives z, or the tower itself where the two cannot be told apart."""
    if isinstance(getattr(visual, "trunk", None), nn.Module) and _projects(getattr(visual, "head", None)):
        wide = twin(visual)
        wide.get_submodule("head").register_forward_hook(lambda _, seen, said: _joined(said, seen[0]))
        return wide
    projection = getattr(visual, "proj", None)
    if isinstance(projection, Tensor):
        wide = twin(visual)
        wide.register_parameter("proj", None)
        wide.register_forward_hook(_projecting(projection.detach()))
        return wide
    return visual


def wide_text(text: Tensor, width: int) -> Tensor:
    """Class embeddings (C D) for features of that width: zeros where words have nothing to say."""
    return F.pad(text, (0, width - text.shape[1]))


def wide_scale(logit_scale: float, text: Tensor, width: int) -> float:
    """The logit scale at which features of that width agree with the words as the tower's own do."""
    return logit_scale * math.sqrt(1 + SEEN**2) if width > text.shape[1] else logit_scale


def _projects(head: nn.Module | None) -> bool:
    return head is not None and any(True for _ in (*head.parameters(), *head.buffers()))


def _projecting(projection: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    return lambda _module, _images, seen: _joined(seen @ projection, seen)


def _joined(said: Tensor, seen: Tensor) -> Tensor:
    parts = [F.normalize(said, dim=-1), SEEN * F.normalize(seen, dim=-1)]
    return torch.cat(parts, dim=-1) / math.sqrt(1 + SEEN**2)
