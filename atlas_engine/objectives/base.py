"""What a loss is made of: a function from images to logits, and a batch. Knows nothing of banks.

An objective is called as ``objective(logits_fn, batch)`` and gives back one number to make small. It may call
``logits_fn`` as often as it likes, on as many views as it likes: the weights behind it are composed once per
optimiser step and shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from atlas_engine.errors import ConfigError

__all__ = ["Batch", "LogitsFn", "Objective", "weighted_mean"]

LogitsFn = Callable[[Tensor], Tensor]
"""Images (B 3 H W) to logits (B C)."""


class Objective(Protocol):
    """A loss: what the loop makes small."""

    @property
    def additive(self) -> bool:
        """Whether a batch's loss is the weighted mean of its images' losses, and may be taken in parts."""
        ...

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Tensor:
        """The loss of the batch, a tensor without dimensions."""
        ...


@dataclass(frozen=True, eq=False)
class Batch:
    """Images of one step, with whatever is known of them. Every tensor has B rows.

    ``labels`` are class numbers (B) or target probabilities (B C); ``weights`` (B) count an image more or
    less than its neighbours; ``strong`` is a second, heavily changed view of the same images; ``progress``
    is how much of the run is over, for an objective that changes with time.
    """

    images: Tensor  # (B 3 H W)
    labels: Tensor | None = None  # (B) or (B C)
    weights: Tensor | None = None  # (B)
    strong: Tensor | None = None  # (B 3 H W)
    progress: float = 0.0  # 0 … 1

    def __len__(self) -> int:
        return self.images.shape[0]

    def __repr__(self) -> str:
        known = [name for name in self._tensors() if name != "images"]
        return f"Batch({len(self)} images{''.join(', ' + name for name in known)})"

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return self._each(lambda rows: rows.to(device))

    def split(self, size: int) -> Iterator[Batch]:
        """The batch in parts of at most ``size`` images, in order."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield self._each(lambda rows, part=part: rows[part])  # type: ignore[misc]

    def mass(self) -> Tensor:
        """Σ weights; the number of images where there are none."""
        if self.weights is None:
            return torch.tensor(float(len(self)), device=self.images.device)
        return self.weights.sum()

    def strong_view(self) -> Tensor:
        """The second view, for an objective that cannot do without."""
        if self.strong is None:
            raise ConfigError(
                f"this objective compares two views of each image, and {self!r} has one. "
                "Give the batch a strong view, or choose an objective without."
            )
        return self.strong

    def _tensors(self) -> dict[str, Tensor]:
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: rows for name, rows in held.items() if isinstance(rows, Tensor)}

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {name: change(rows) for name, rows in self._tensors().items()}
        return replace(self, **changed)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Σ w·l / Σ w, and exactly 0, not NaN, where every weight is 0.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 2.0])).item()
    3.0
    """
    if weights is None:
        return losses.mean()
    total = weights.sum()
    return (losses * weights).sum() / torch.where(total > 0, total, torch.ones_like(total))
