"""Which images to trust: the surest few of each predicted class. Tensors only; knows nothing of views.

pseudo = trusted_labels(logits)               # (N) class numbers, UNTRUSTED for all but a few
chosen = (pseudo != UNTRUSTED).nonzero()      # whom a batch source draws a quarter of each batch from
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["MOST", "SHARE", "UNTRUSTED", "trusted_labels"]

UNTRUSTED = -1
"""The label of an image whose class we do not claim to know."""

SHARE, MOST = 10, 100  # one in SHARE of a class's fair part of the images, at most MOST


def trusted_labels(logits: Tensor) -> Tensor:
    """(N C) -> (N): the predicted class of the images that are trusted, and `UNTRUSTED` for the others.

    Of the images predicted as a class, the k with the highest confidence are trusted, where
    k = max(1, min(⌊N / C / 10⌋, 100)): 2,000 images of 10 classes give 20 a class, 5 images 1. A class that
    nothing was predicted as trusts nothing. Of equally sure images the earlier ones are taken.
    """
    count, classes = logits.shape
    if not count:
        return torch.empty(0, dtype=torch.long, device=logits.device)
    most = max(1, min(count // (classes * SHARE), MOST))
    top, predicted = logits.float().max(dim=-1)
    others = logits.float().scatter(1, predicted[:, None], -torch.inf).logsumexp(dim=-1)
    odds = top - others  # ln p / (1 − p): in the order of confidence, and never rounded to 1
    return torch.where(_rank_in_class(odds, predicted) < most, predicted, UNTRUSTED)


def _rank_in_class(sureness: Tensor, predicted: Tensor) -> Tensor:
    """(N): how many images of the same predicted class come before each one."""
    order = sureness.argsort(descending=True, stable=True)
    order = order[predicted[order].argsort(stable=True)]  # class by class, the surest first
    sizes = predicted.bincount()
    begins = sizes.cumsum(0) - sizes
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(len(order), device=order.device) - begins[predicted[order]]
    return ranks
