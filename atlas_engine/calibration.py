"""Probabilities that mean something, and "none of these": a temperature and a threshold for a model's logits.

    calibration = calibrate(logits, labels)              # held-out logits (N C) and labels (N)
    probs = calibration.probs(new_logits)                # (N C) -> (N C); the ranking stays as it was
    calibration.rejects(new_logits)                      # (N): which images are none of the classes

The temperature T divides the logits (Guo et al., ICML 2017). It minimises the cross-entropy of images that
the model was not fitted on. A prior holds it near 1, because the models of the folds have seen fewer images
than the model that is kept, and because a few images that are all right would make it 0.

An image is rejected where its largest logit, before the temperature, is below `reject_below` (the max-logit
score of Hendrycks et al., ICML 2022: a softmax forgets how far an image is from all classes alike). The
threshold is the k-th smallest such logit of N held-out images: by the argument of split conformal prediction
(Vovk et al., 2005) a new image of the known classes is kept with a probability of at least 1 − k / (N + 1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from atlas_engine.errors import ConfigError, EvalError

__all__ = ["KEPT_SHARE", "Calibration", "calibrate", "fit_temperature", "fit_threshold"]

KEPT_SHARE = 0.95  # of the images of known classes that a threshold should keep
LOG_TEMPERATURES = tuple(step / 100 * math.log(10.0) for step in range(-100, 101))  # 0.1 … 10, 2.3 % apart
PRIOR_SPREAD = 0.1
"""Of log T around 0, in a sum over images: chosen among 0.05 … 1 on data sets of the bank."""


@dataclass(frozen=True)
class Calibration:
    """How logits become probabilities, and below which largest logit an image is none of the classes.

    `kept_share` is the share of images of known classes that `reject_below` promises to keep. Without
    held-out images there is no threshold, and both are None.
    """

    temperature: float = 1.0
    reject_below: float | None = None  # a logit, before the temperature
    kept_share: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(f"temperature is {self.temperature}, and must be a finite number above 0.")
        if self.reject_below is not None and not math.isfinite(self.reject_below):
            raise ConfigError(f"reject_below is {self.reject_below}, and must be a finite logit, or None.")
        if self.kept_share is not None and not 0 <= self.kept_share <= 1:
            raise ConfigError(f"kept_share is {self.kept_share}, and must be a share from 0 to 1, or None.")

    def probs(self, logits: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        """softmax(logits / T)."""
        return torch.softmax(logits.float() / self.temperature, dim=1)

    def rejects(self, logits: Float[Tensor, "N C"]) -> Bool[Tensor, " N"]:
        """Which images are none of the classes: their largest logit is below `reject_below`."""
        return known_scores(logits) < (-math.inf if self.reject_below is None else self.reject_below)


def known_scores(logits: Float[Tensor, "N C"]) -> Float[Tensor, " N"]:
    """How much each image looks like one of the classes: its largest logit."""
    return logits.float().amax(dim=1)


def calibrate(
    logits: Float[Tensor, "N C"],
    labels: Int[Tensor, " N"],
    *,
    kept_share: float = KEPT_SHARE,
    temperature: float | None = None,
) -> Calibration:
    """Temperature and threshold from logits of images that the model was not fitted on.

    A `temperature` that is given is kept as it is, and only the threshold is fitted.
    """
    chosen = fit_temperature(logits, labels) if temperature is None else temperature
    reject_below, promised = fit_threshold(known_scores(logits), kept_share=kept_share)
    return Calibration(chosen, reject_below, promised)


def fit_temperature(logits: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """The T > 0 that minimises Σ cross-entropy(logits / T) + (log T)² / (2 · PRIOR_SPREAD²)."""
    _require_images(logits)
    candidates = torch.tensor(LOG_TEMPERATURES, dtype=torch.float64, device=logits.device)
    rows = torch.arange(len(labels), device=logits.device)
    losses = torch.stack(
        [-(logits.double() / t).log_softmax(dim=1)[rows, labels].sum() for t in candidates.exp()]
    )
    best = (losses + candidates.square() / (2 * PRIOR_SPREAD**2)).argmin()
    return float(candidates[best].exp())


def fit_threshold(scores: Float[Tensor, " N"], *, kept_share: float = KEPT_SHARE) -> tuple[float, float]:
    """The threshold that keeps `kept_share` of known images, by the scores of N of them; and its promise.

    Few images cannot promise much: with 9, the smallest of their scores keeps 90 %, which is the promise.

    >>> fit_threshold(torch.tensor([7.0, 3.0, 5.0]), kept_share=0.5)
    (5.0, 0.5)
    """
    _require_images(scores)
    if not 0 < kept_share < 1:
        raise ConfigError(f"kept_share is {kept_share}, and must lie between 0 and 1, such as {KEPT_SHARE}.")
    count = len(scores)
    k = max(1, math.floor((count + 1) * (1 - kept_share) + 1e-9))  # 1e-9: 20 · (1 − 0.95) counts as 1
    return float(scores.sort().values[k - 1]), 1 - k / (count + 1)


def _require_images(values: Tensor) -> None:
    if not len(values):
        raise EvalError("there is no held-out image to calibrate with. Give at least one.")
