"""How well a head would do on images it has not seen, from the evidence alone. Knows nothing of any one head.

    logits = estimate(LPP.folds, evidence)              # (N C), each row by a head that was made without it
    (logits.argmax(1) == evidence.labels).float().mean()

Up to 64 images are left out one by one, more in 8 folds with every class spread over them. Pictures with the
same features are left out together: a twin in the evidence would give the answer away. A class whose only
image is left out has its name alone, so with one image a class the estimate tells how the others mislead and
not how well a head would do. The folds differ in labels only, so a head may make all of them at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.errors import ConfigError, EvalError
from atlas_engine.heads.base import UNUSED, Head, LabelledFeatures, ZeroShot

__all__ = ["MakeHead", "MakeHeads", "assign_folds", "estimate", "one_by_one", "wilson_interval"]

MakeHead = Callable[[LabelledFeatures], Head]
MakeHeads = Callable[[LabelledFeatures, Tensor], Sequence[Head]]
"""Evidence, and R labellings (R N) of its features, to R heads."""

LEAVE_ONE_OUT = 64  # images up to which each is a fold of its own
FOLDS = 8
TWINS = 1.0 - 1e-5  # cosine of one picture saved twice, through float32
CHUNK = 1024


def estimate(
    make_heads: MakeHeads, evidence: LabelledFeatures, *, folds: int | None = None, seed: int = 0
) -> Tensor:
    """(N C): each image's logits by a head made without it and without its twins.

    Rows that are unused anyway get the head of all the evidence.
    """
    fold_of = assign_folds(evidence, folds=folds, seed=seed)  # (N)
    numbers = torch.unique(fold_of)  # (R), with UNUSED first where some rows are
    labels = evidence.labels.expand(len(numbers), -1).masked_fill(fold_of == numbers.unsqueeze(1), UNUSED)
    able = (labels != UNUSED).any(dim=1)  # (R)
    heads = iter(make_heads(evidence, labels[able]) if bool(able.any()) else ())
    logits = torch.empty(len(fold_of), len(evidence.text), device=fold_of.device)
    for number, some_left in zip(numbers.tolist(), able.tolist(), strict=True):
        head: Head = next(heads) if some_left else ZeroShot.fitted(evidence)
        rows = fold_of == number
        logits[rows] = head.logits(evidence.features[rows])
    return logits


def assign_folds(evidence: LabelledFeatures, *, folds: int | None = None, seed: int = 0) -> Tensor:
    """(N): the fold of each row, 0 … R − 1, or UNUSED; twins share one, and classes are spread evenly."""
    if folds is not None and folds < 2:
        raise ConfigError(f"folds is {folds}, but holding something out needs 2 or more. Give at least 2.")
    first, dense = torch.unique(_twins(evidence.features), return_inverse=True)  # (G), (N)
    labels = evidence.labels.tolist()
    leaders = [row for row in first.tolist() if labels[row] != UNUSED]
    alone = folds is None and len(leaders) <= LEAVE_ONE_OUT
    count = len(leaders) if alone else min(folds or FOLDS, len(leaders))
    order = torch.randperm(len(leaders), generator=runtime.generator(seed)).tolist()
    by_class = sorted((leaders[index] for index in order), key=lambda row: labels[row])
    fold_of_group = {row: place % count for place, row in enumerate(by_class)}
    folds_of_groups = torch.tensor([fold_of_group.get(row, UNUSED) for row in first.tolist()])
    dealt = folds_of_groups.to(dense.device)[dense]
    return dealt.masked_fill(~evidence.used, UNUSED)


def one_by_one(make_head: MakeHead) -> MakeHeads:
    """A maker of many heads out of a maker of one."""

    def make_heads(evidence: LabelledFeatures, labels: Tensor) -> Sequence[Head]:
        return [make_head(evidence.labelled(row)) for row in labels]

    return make_heads


def _twins(features: Tensor) -> Tensor:
    """(N): for each row the first row with the same features, itself where there is none before it."""
    units = F.normalize(features, dim=1)
    parts = [(part @ units.T >= TWINS).int().argmax(dim=1) for part in torch.split(units, CHUNK)]
    return torch.cat(parts)


# ---- Shares of a count, and how sure one may be of them. Knows nothing of what was counted.
Z95 = 1.959964


def wilson_interval(right: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson's, which holds at small counts and near 0 and 1).

    >>> tuple(round(bound, 3) for bound in wilson(8, 10))
    (0.49, 0.943)
    """
    if count <= 0 or not 0 <= right <= count:
        raise EvalError(f"cannot bound {right} of {count}. Give a count of at least 1.")
    share, z2 = right / count, Z95**2
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    reach = Z95 * math.sqrt(share * (1 - share) / count + z2 / (4 * count**2)) / (1 + z2 / count)
    return max(0.0, middle - reach), min(1.0, middle + reach)
