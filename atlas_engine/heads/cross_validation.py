"""Folds of a labelled support, and how far to trust an accuracy that was measured on them.

fold = assign_folds(support, folds=4)                   # (N), 0 … 3, or UNUSED
low, high = wilson_interval(right=8, count=10)          # 0.49, 0.94
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.errors import ConfigError, EvalError
from atlas_engine.heads.base import UNUSED, LabelledFeatures

__all__ = ["assign_folds", "wilson_interval"]

DUPLICATE_COSINE = 1.0 - 1e-5  # of one image saved twice, through float32
CHUNK = 1024
Z95 = 1.959964  # the normal distribution's 97.5 % quantile


def assign_folds(support: LabelledFeatures, *, folds: int, seed: int = 0) -> Int[Tensor, " N"]:
    """The fold of each row, 0 … R − 1, or UNUSED for a row that is unused; R is at most ``folds``.

    The images of each class are spread evenly over the folds. Rows with the same features share a fold: a
    duplicate left in the support would give the held-out answer away.
    """
    if folds < 2:
        raise ConfigError(f"folds is {folds}, but holding something out needs 2 or more. Give at least 2.")
    # one group per distinct image, known by its first row
    first_rows, group = torch.unique(_first_duplicates(support.features), return_inverse=True)  # (G), (N)
    labels = support.labels.tolist()
    leaders = [row for row in first_rows.tolist() if labels[row] != UNUSED]
    # shuffle, sort by class, and deal the groups out like cards
    order = torch.randperm(len(leaders), generator=runtime.generator(seed)).tolist()
    by_class = sorted((leaders[index] for index in order), key=lambda row: labels[row])
    fold_of_leader = {row: place % min(folds, len(leaders)) for place, row in enumerate(by_class)}
    # every row gets the fold of its group
    fold_of_group = torch.tensor([fold_of_leader.get(row, UNUSED) for row in first_rows.tolist()])
    return fold_of_group.to(group.device)[group].masked_fill(~support.used, UNUSED)


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of the share ``right / count``.

    Wilson's score interval (1927), which holds at small counts and near 0 and 1.

    >>> tuple(round(bound, 3) for bound in wilson_interval(8, 10))
    (0.49, 0.943)
    """
    if count <= 0 or not 0 <= right <= count:
        raise EvalError(f"cannot bound {right} of {count}. Give a count of at least 1.")
    share, z2 = right / count, Z95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    reach = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def _first_duplicates(features: Float[Tensor, "N D"]) -> Int[Tensor, " N"]:
    """For each row the first row with the same features: itself, unless an earlier one is its duplicate."""
    units = F.normalize(features, dim=1)
    chunks = [
        (chunk @ units.T >= DUPLICATE_COSINE).int().argmax(dim=1) for chunk in torch.split(units, CHUNK)
    ]
    return torch.cat(chunks)
