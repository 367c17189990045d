"""Have I done enough? A learning curve from sub-samples of the support, and what more images would bring.

    advice = advise(images, right=17, count=20, folds=4)
    advice.sentence        # "About 4 more images a class: 86 → 91 % (80 to 97 %)."

The error of a classifier falls about as a power of the images per class, err(n) ∝ n^−γ (Cortes et al., NIPS
1993). The level comes from the images held out of the kept model, each answered by a model that has seen a
share 1 − 1/folds of the support. The slope γ comes from sub-samples of the support: the ridge head is
fitted on a part of each class and asked about the rest, several times. A few images tell little of a slope,
so γ is drawn towards what data sets of the bank have in common, as far as the images leave it open.
The interval holds the doubt about both. `atlas eval trust` measures how far the advice is off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.cross_validation import Z95
from atlas_engine.heads.ridge import Ridge
from atlas_engine.result import Advice, CurvePoint

__all__ = ["PowerLaw", "advise", "advise_from_held_out", "fit_power_law"]

USUAL_SLOPE, SLOPE_SPREAD = 0.35, 0.2  # γ of a text probe from 2 to 32 images on data sets of the bank
SHARES = (0.25, 0.5, 0.75)  # of each class that a sub-sample holds
DRAWS = 6
OVERDISPERSION = 1.2  # of a held-out error: its images share the support that answers them
MAX_IMAGES = 600  # of the support that sub-samples are drawn from
WORTH_ASKING = 0.03  # of accuracy: the gain from which more images are advised
MORE_IMAGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # per class, that may be advised
MOST_TIMES = 4  # as many images per class as there are now; further the curve is not trusted


@dataclass(frozen=True)
class PowerLaw:
    """log err(n) = log_error − slope · log(n / images), with the deviations of both numbers."""

    images: float  # per class, that `log_error` was measured at
    log_error: float
    log_error_deviation: float
    slope: float
    slope_deviation: float

    def at(self, images_per_class: float) -> CurvePoint:
        """The accuracy to expect at so many images per class, with its 95 % interval."""
        distance = math.log(images_per_class / self.images)
        middle = self.log_error - self.slope * distance
        reach = Z95 * math.hypot(self.log_error_deviation, self.slope_deviation * distance)
        return CurvePoint(
            round(images_per_class),
            1 - min(1.0, math.exp(middle)),
            1 - min(1.0, math.exp(middle + reach)),
            1 - min(1.0, math.exp(middle - reach)),
        )


def advise(
    images: LabelledFeatures,
    *,
    right: int,
    count: int,
    folds: int,
    zero_shot_accuracy: float | None = None,
    from_text: bool = True,
    seed: int = 0,
) -> Advice:
    """How many more images to add, from `right` of `count` held-out images in so many folds.

    `zero_shot_accuracy` is given where zero-shot was kept: what is learned counts once it is better.
    """
    if not count:
        return Advice(
            "With one image per class nothing can be held out, so what more images bring is not known. Add a "
            "second image to each class to find out.",
            enough=None,
        )
    law = fit_power_law(images, right=right, count=count, folds=folds, from_text=from_text, seed=seed)
    per_class = float(images.counts[images.counts > 0].mean())

    def at(more: float) -> CurvePoint:
        return _at_least(law.at(per_class + more), zero_shot_accuracy)

    now = at(0)
    # the fewest images that gain enough to be worth asking for
    candidates = [more for more in MORE_IMAGES if more <= (MOST_TIMES - 1) * per_class]
    worth = next((more for more in candidates if at(more).accuracy - now.accuracy >= WORTH_ASKING), None)
    more = round(per_class) if worth is None else worth
    then = at(more)
    curve = (now, *(at(added) for added in candidates))
    return Advice(_sentence(now, then, more, enough=worth is None), worth is None, more, now, then, curve)


def advise_from_held_out(
    images: LabelledFeatures,
    logits: Mapping[str, Tensor],
    folds: Int[Tensor, " N"],
    *,
    kept: str,
    from_text: bool,
    seed: int,
) -> Advice:
    """The advice of a run, by the out-of-fold logits (N C) of its methods, zero-shot first."""
    rows = folds != UNUSED
    right = {method: int((own.argmax(dim=1) == images.labels)[rows].sum()) for method, own in logits.items()}
    count, (start, *learned) = int(rows.sum()), right
    return advise(
        images,
        right=max(right[method] for method in learned) if kept == start else right[kept],
        count=count,
        folds=int(folds.max()) + 1,
        zero_shot_accuracy=right[start] / count if kept == start and count else None,
        from_text=from_text,
        seed=seed,
    )


def fit_power_law(
    images: LabelledFeatures,
    *,
    right: int,
    count: int,
    folds: int,
    from_text: bool = True,
    seed: int = 0,
) -> PowerLaw:
    """Level from the held-out images, slope from sub-samples, each with its doubt."""
    per_class = float(images.counts[images.counts > 0].mean())
    # level: a Beta posterior of the error with Jeffreys' prior, by the moments of its logarithm
    wrong, of_all = torch.tensor(count - right + 0.5), torch.tensor(count + 1.0)
    variance = torch.special.polygamma(1, wrong) - torch.special.polygamma(1, of_all)
    slope, deviation = _slope(_sub_sample_errors(images, from_text=from_text, seed=seed), count=count)
    return PowerLaw(
        images=per_class * (1 - 1 / max(2, folds)),
        log_error=math.log(float(wrong / of_all)),
        log_error_deviation=OVERDISPERSION * math.sqrt(float(variance)),
        slope=slope,
        slope_deviation=deviation,
    )


def _slope(errors: Sequence[tuple[float, float]], *, count: int) -> tuple[float, float]:
    """γ and its deviation, from (images per class, error) of sub-samples and the usual slope."""
    places = torch.tensor([math.log(size) for size, _ in errors], dtype=torch.float64)
    spread = float((places - places.mean()).square().sum()) if len(errors) else 0.0
    if spread < 1e-6:
        return USUAL_SLOPE, SLOPE_SPREAD
    logs = torch.tensor([math.log(error) for _, error in errors], dtype=torch.float64)
    measured = -float(((places - places.mean()) * logs).sum()) / spread
    # the doubt in a log error that was measured on `count` images
    error = math.exp(float(logs.mean()))
    variance = (1 - error) / (error * count) / spread
    trust = SLOPE_SPREAD**2 / (SLOPE_SPREAD**2 + variance)
    slope = max(0.0, USUAL_SLOPE + trust * (measured - USUAL_SLOPE))
    return slope, SLOPE_SPREAD * math.sqrt(1 - trust)


def _sub_sample_errors(images: LabelledFeatures, *, from_text: bool, seed: int) -> list[tuple[float, float]]:
    """(images per class, share wrong) of the ridge head on parts of the support, asked about the rest."""
    draw = runtime.generator(seed)
    errors = []
    for share in SHARES:
        wrong, asked, sizes = 0, 0, list[float]()
        for _ in range(DRAWS):
            labels = _drawn_labels(images.labels, share, draw)
            rest = (labels == UNUSED) & images.used
            part = images.with_labels(labels)
            if not bool(rest.any()):
                continue
            answers = Ridge.fit(part, from_text=from_text).scores(images.features[rest]).argmax(dim=1)
            wrong += int((answers != images.labels[rest]).sum())
            asked += int(rest.sum())
            sizes.append(float(part.counts[part.counts > 0].mean()))
        if asked:
            errors.append((sum(sizes) / len(sizes), (wrong + 0.5) / (asked + 1)))
    return errors


def _drawn_labels(labels: Int[Tensor, " N"], share: float, draw: torch.Generator) -> Int[Tensor, " N"]:
    """The labels with a share of each class kept, at least one image; the others are UNUSED."""
    kept = torch.full_like(labels, UNUSED)
    used = labels[labels != UNUSED]
    most = max(2, MAX_IMAGES // len(torch.unique(used)))
    for label in torch.unique(used).tolist():
        own = (labels == label).nonzero().squeeze(1)
        order = own[torch.randperm(len(own), generator=draw).to(own.device)][:most]
        kept[order[: max(1, int(share * len(order)))]] = label
    return kept


def _at_least(point: CurvePoint, accuracy: float | None) -> CurvePoint:
    if accuracy is None or point.accuracy >= accuracy:
        return point
    return CurvePoint(point.images_per_class, accuracy, min(point.low, accuracy), max(point.high, accuracy))


def _sentence(now: CurvePoint, then: CurvePoint, more: int, *, enough: bool) -> str:
    change = f"{now.accuracy:.0%} → {then.accuracy:.0%} ({then.low:.0%} to {then.high:.0%})"
    images = f"{more} more image{'' if more == 1 else 's'} a class"
    return f"This is enough: {images} would bring {change}." if enough else f"About {images}: {change}."
