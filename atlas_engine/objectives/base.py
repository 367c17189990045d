"""What an objective is, and the batch it is computed on.

An objective is called as ``objective(logits_fn, batch)`` and returns a scalar to minimise. It may call
``logits_fn`` as often as it likes, on as many views as it likes: the weights behind it are composed once per
optimiser step and shared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atlas_engine.errors import ConfigError

__all__ = ["Batch", "LogitsFn", "Objective", "weighted_mean"]

LogitsFn = Callable[[Float[Tensor, "B ..."]], Float[Tensor, "B C"]]
"""Images (B 3 H W), or what a frozen prefix of the tower made of them, to logits (B C)."""


@runtime_checkable
class Objective(Protocol):
    """A loss that the loop minimises."""

    @property
    def additive(self) -> bool:
        """Whether the loss of a batch is the weighted mean of its images' losses, so that it may be split."""
        ...

    def __call__(self, logits_fn: LogitsFn, batch: Batch) -> Float[Tensor, ""]:
        """The loss of the batch."""
        ...


@dataclass(frozen=True, eq=False)
class Batch:
    """The images of one step and what is known about them. Every tensor has B rows."""

    images: Float[Tensor, "B ..."]
    """What `LogitsFn` takes."""
    labels: Int[Tensor, " B"] | Float[Tensor, "B C"] | None = None
    """Class numbers, or target probabilities."""
    weights: Float[Tensor, " B"] | None = None
    """How much each image counts; None counts all the same."""
    strong: Float[Tensor, "B ..."] | None = None
    """A second, strongly augmented view of the same images."""
    progress: float = 0.0
    """How much of the run is over, 0 … 1, for an objective that changes with time."""

    def __len__(self) -> int:
        return self.images.shape[0]

    def __repr__(self) -> str:
        known = [name for name in self._tensors() if name != "images"]
        return f"Batch({len(self)} images{''.join(', ' + name for name in known)})"

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on a device."""
        return self._map(lambda rows: rows.to(device))

    def split(self, size: int) -> Iterator[Batch]:
        """The batch in parts of at most ``size`` images, in order."""
        for start in range(0, len(self), size):
            yield self._map(itemgetter(slice(start, start + size)))

    def total_weight(self) -> Float[Tensor, ""]:
        """Σ weights; the number of images where there are none."""
        if self.weights is None:
            return torch.tensor(float(len(self)), device=self.images.device)
        return self.weights.sum()

    def require_strong(self) -> Float[Tensor, "B ..."]:
        """The strong view, or an error for a batch that has none."""
        if self.strong is None:
            raise ConfigError(
                f"this objective compares two views of each image, and {self!r} has one. "
                "Give the batch a strong view, or choose an objective without."
            )
        return self.strong

    def _tensors(self) -> dict[str, Tensor]:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def _map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        changed: dict[str, Any] = {name: change(rows) for name, rows in self._tensors().items()}
        return replace(self, **changed)


def weighted_mean(losses: Float[Tensor, " B"], weights: Float[Tensor, " B"] | None) -> Float[Tensor, ""]:
    """Σ w·l / Σ w, and exactly 0, not NaN, where every weight is 0.

    >>> weighted_mean(torch.tensor([1.0, 3.0]), torch.tensor([0.0, 2.0])).item()
    3.0
    """
    if weights is None:
        return losses.mean()
    total = weights.sum()
    return (losses * weights).sum() / torch.where(total > 0, total, torch.ones_like(total))
