"""Few-shot adaptation: cross-entropy on views of a few labelled pictures. Knows nothing of files or text.

The views are made once and kept, at whatever depth of the tower they are cut (images, or activations above
a frozen part). Each step takes pictures in turn, without repetition until all have had theirs, and one view
of each at random. Every class counts the same, however many pictures it has.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.optimise import BatchRequest, LoopResult, OptimiseConfig, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.slopes import Slopes
from atlas_engine.adapt.trainable import LAM, Trainable, TrainableWithHeads
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.adapt.verdict import (
    ZERO_SHOT,
    decide_verdict,
    estimate_accuracies,
    held_out_folds,
    labels_per_fold,
)
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.config import setting
from atlas_engine.data.augment import Augment
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import UNUSED, Head, LabelledFeatures, ZeroShot
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

__all__ = [
    "AUTO",
    "FEW_SHOT_METHODS",
    "FewShotConfig",
    "FewShotContext",
    "FewShotMethod",
    "adapt_few_shot",
    "find_few_shot_method",
    "learn_few_shot",
]


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(OptimiseConfig):
    """How coefficients are learned from a few labelled pictures."""

    steps: int = setting(24, help="optimiser steps", low=0, high=100_000)
    lr: float = setting(0.05, help="learning rate of the first step", low=0.0, high=100.0)
    batch: int = setting(16, help="pictures a step; all of them where there are fewer", low=1)
    views: int = setting(6, help="random views of each picture, made once and kept", low=1, high=1000)
    share: float | None = setting(
        None,
        help="share of the tower's weights, from its end, that may move, 1 for all; none is the method's own",
        low=0.0,
        high=1.0,
    )
    folds: int = setting(4, help="most parts the pictures are held out in, one after another", low=2, high=64)


def learn_few_shot(
    subject: Trainable,
    views: Tensor,
    labels: Tensor,
    *,
    config: FewShotConfig,
    seeds: Sequence[int] = (0,),
    stop: StopFlag | None = None,
) -> Generator[Step, None, LoopResult]:
    """Learn from V views of N pictures (V N …) and, for each of R runs, their class numbers (R N).

    A run does not see the pictures that are `UNUSED` in its row: they are held out.
    """
    source = _Turns(views, labels, config.batch)
    return (yield from optimise(subject, CrossEntropy(), source, config=config, seeds=seeds, stop=stop))


class _Turns:
    """Batches in which every picture has its turn before any has a second one, run by run."""

    def __init__(self, views: Tensor, labels: Tensor, size: int) -> None:
        self._views, self._labels, self._size = views, labels, size
        self._waiting: dict[int, Tensor] = {}

    def __call__(self, request: BatchRequest) -> Batch:
        labels = self._labels[request.run]
        rows = (labels != UNUSED).nonzero().squeeze(1).cpu()
        chosen = self._turn(request, rows).to(labels.device)
        view = torch.randint(len(self._views), (len(chosen),), generator=request.generator)
        counts = torch.bincount(labels[rows.to(labels.device)])
        weights = 1.0 / counts[labels[chosen]]
        images = runtime.for_convolutions(self._views[view.to(chosen.device), chosen])
        return Batch(images, labels=labels[chosen], weights=weights)

    def _turn(self, request: BatchRequest, rows: Tensor) -> Tensor:
        size = min(self._size, len(rows))
        waiting = self._waiting.get(request.run, torch.empty(0, dtype=torch.long))
        while len(waiting) < size:
            order = torch.randperm(len(rows), generator=request.generator)
            waiting = torch.cat([waiting, rows[order]])
        chosen, self._waiting[request.run] = waiting[:size], waiting[size:]
        return chosen


# ---- Few-shot adaptation, from labelled pictures to a result. Knows nothing of files, sessions or pages.
# preview a head on zero-shot features of the pictures and of a random view of each, at once look more
# random views, each once, as far as the frozen part of the tower goes learn coefficients from there, for
# all pictures and beside it without each part of them fit the head, on what half of these coefficients
# make of the pictures and views verdict who was right on what was held out `auto` does all of that and
# keeps zero-shot where nothing beats it; any other method does what it is told.
AUTO = "auto"
FIRST, LOOKING, SLOPING = 0.02, 0.13, 0.15  # shares of a run's work, about


class FewShotMethod(NamedTuple):
    """A way to adapt: which head, and how coefficients come to it: by their slopes, by learning, or not."""

    head: str
    slopes: bool = False
    learns: bool = False
    layout: Layout = Layout()
    share: float = 0.5  # of the tower's weights, from its end, that may move
    stride: float = 1.0  # times the learning rate
    way: float = (
        1.0  # share of the way to what was learned that is gone, as WiSE-FT (CVPR 2022) between models
    )

    @property
    def mixes(self) -> bool:
        """Whether task vectors are mixed at all."""
        return self.slopes or self.learns


FEW_SHOT_METHODS = MappingProxyType(
    {
        ZERO_SHOT: FewShotMethod("none"),
        "tip": FewShotMethod("tip"),
        "tip-f": FewShotMethod("tip-f"),
        "lpp": FewShotMethod("lpp"),
        "linear-probe": FewShotMethod("linear-probe"),
        "text-probe": FewShotMethod("text-probe"),
        "slope": FewShotMethod("none", slopes=True),
        "atlas-iso": FewShotMethod("none", learns=True, layout=Layout("isotropic")),
        "atlas": FewShotMethod("none", learns=True),
        "atlas-half": FewShotMethod("none", learns=True, way=0.5),
        "slope+atlas": FewShotMethod("none", slopes=True, learns=True, stride=0.4),
        "atlas+tip": FewShotMethod("tip", learns=True),
        "atlas+lpp": FewShotMethod("lpp", learns=True),
        "atlas+text-probe": FewShotMethod(
            "text-probe", learns=True, layout=Layout(partitions=20), share=0.85, stride=4.0, way=0.5
        ),
    }
)
PREVIEW, WANTED = "text-probe", "atlas+text-probe"
"""What `auto` shows first and at last; it keeps whichever did best on what was held out."""


def find_few_shot_method(name: str) -> FewShotMethod:
    """The method of that name, what `auto` wants for `auto`, or an error that offers the nearest."""
    if name != AUTO and name not in FEW_SHOT_METHODS:
        raise ConfigError(unknown_name("method", name, (*FEW_SHOT_METHODS, AUTO)))
    return FEW_SHOT_METHODS[WANTED if name == AUTO else name]


@dataclass(frozen=True, eq=False)
class FewShotContext:
    """Who takes part: a model, a bank that was made for it, pictures, and the embeddings of their classes."""

    backbone: Backbone
    bank: TaskVectorBank
    support: Support
    text: Tensor  # (C D)
    model_fingerprint: str


def adapt_few_shot(
    scene: FewShotContext,
    *,
    method: str,
    config: FewShotConfig,
    layout: Layout | None,
    seed: int,
    stop: StopFlag,
) -> Generator[Step, None, AdaptResult]:
    """Yield steps of every phase, then return the result."""
    adaptation = _Adaptation(scene, method=method, config=config, layout=layout, seed=seed, stop=stop)
    return (yield from adaptation.run())


class _Adaptation:
    def __init__(
        self,
        scene: FewShotContext,
        *,
        method: str,
        config: FewShotConfig,
        layout: Layout | None,
        seed: int,
        stop: StopFlag,
    ) -> None:
        self.scene, self.name, self.method = scene, method, find_few_shot_method(method)
        self.head = HEADS[self.method.head]
        self.config, self.seed, self.stop = config, seed, stop
        self.layout = layout or self.method.layout
        self.story = Progress()
        self.moving = TrainablePart(
            scene.backbone,
            scene.bank,
            share=self.method.share if config.share is None else config.share,
            layout=self.layout,
            wide=self.head.feature_level is not FeatureLevel.projected,
        )
        self.labels = torch.tensor(scene.support.labels, device=scene.backbone.device)

    def run(self) -> Generator[Step, None, AdaptResult]:
        pixels = self.squares()
        clean = self.moving.activations(pixels.float() / 255)
        if self.head.feature_level is FeatureLevel.multi_scale:
            self.moving.fit_feature_stats(clean)
        draw = runtime.generator(self.seed)
        looks = [clean, *(self.view(pixels, draw) for _ in range(self.head.extra_views))]
        if not self.method.mixes:
            return self.ended(self.name, self.recipe(self.name, self.head.fit_alone(self.evidence(looks))))
        run = self.checked if self.name == AUTO else self.unchecked
        return (yield from run(looks, self.look(pixels, looks[1:], draw)))

    def unchecked(
        self, looks: Sequence[Tensor], looking: Generator[Step, None, Tensor]
    ) -> Generator[Step, None, AdaptResult]:
        """The method that was asked for, whether it helps or not."""
        views = yield from looking
        labels, evidence = self.labels[None], self.evidence(looks)
        subject = self.subject(self.beside(self.heads(evidence, labels), evidence))
        if self.method.slopes:
            subject = yield from self.sloped(subject, looks[0], views, labels)
        if not self.method.learns:
            (lam,) = _start_of(subject)[LAM]
            return self.ended(self.name, self.recipe(self.name, subject.head(_start_of(subject)), lam))
        ending = yield from self.learn(subject, views, labels)
        (lam,), (head,) = self.gone(ending), self.learned(subject, ending, looks, labels)
        return self.ended(self.name, self.recipe(self.name, head, lam), ending=ending)

    def checked(
        self, looks: Sequence[Tensor], looking: Generator[Step, None, Tensor]
    ) -> Generator[Step, None, AdaptResult]:
        """One answer after the other, each beside what it says of pictures held out; the best is kept."""
        plain = self.evidence(looks[:1])
        fold = held_out_folds(plain, folds=self.config.folds, seed=self.seed)
        labels = labels_per_fold(self.labels, fold)
        heads = self.heads(self.evidence(looks), labels)
        zero_shot = HEADS["none"].fit_alone(plain)
        answers = {ZERO_SHOT: zero_shot.logits(plain.features)}
        answers[PREVIEW] = _in_turn(fold, lambda run, rows: heads[run].logits(plain.features[rows]))
        self.story.estimates = estimate_accuracies(answers, self.labels, fold)
        known = {ZERO_SHOT: self.recipe(ZERO_SHOT, zero_shot), PREVIEW: self.recipe(PREVIEW, heads[-1])}
        yield self.story.mark("preview", 0, 1, share=FIRST, preview=known[PREVIEW])
        views = yield from looking
        subject = self.subject(self.beside(heads, plain))
        ending = yield from self.learn(subject, views, labels)
        if ending.outcome is Outcome.finished:  # one that was stopped keeps what it has checked, at once
            lam, learned = self.gone(ending), self.learned(subject, ending, looks, labels)
            answers[WANTED] = self.answers(subject.encoder, lam, learned, looks[0], fold)
            known[WANTED] = self.recipe(WANTED, learned[-1], lam[-1])
            self.story.estimates = estimate_accuracies(answers, self.labels, fold)
        verdict = decide_verdict(answers, self.labels, fold)
        return self.ended(verdict.kept, known[verdict.kept], ending=ending, verdict=verdict)

    # ---- phases

    def view(self, pixels: Tensor, draw: torch.Generator) -> Tensor:
        """(N, …): a random view of each picture, as far as the cut."""
        return self.moving.activations(Augment(jitter=0.0)(pixels, draw))

    def look(
        self, pixels: Tensor, first: Sequence[Tensor], draw: torch.Generator
    ) -> Generator[Step, None, Tensor]:
        """(V, N, …): random views of each picture, those that were taken before among them."""
        needed = -(-self.config.steps * self.config.batch // len(pixels)) if self.method.learns else 1
        count = max(min(self.config.views, needed), 1)
        kept = list(first)
        for index in range(len(kept), count):
            yield self.story.mark("look", index, count, share=FIRST + LOOKING * index / count)
            kept.append(self.view(pixels, draw))
        return torch.stack(kept)

    def heads(self, evidence: LabelledFeatures, labels: Tensor) -> list[Head]:
        """Where the head begins, for every labelling (R N)."""
        return [
            self.head.initialise(evidence.with_labels(row.repeat(1 + self.head.extra_views)))
            for row in labels
        ]

    def beside(self, heads: Sequence[Head], evidence: LabelledFeatures) -> Sequence[Head]:
        """The heads that coefficients are learned under: these, or the class names for one that follows.

        A head that fits its pictures leaves hardly any loss for the coefficients to learn from.
        """
        return [ZeroShot.fitted(evidence)] * len(heads) if self.head.fit_after else heads

    def subject(self, heads: Sequence[Head], lam: Tensor | None = None) -> TrainableWithHeads:
        """What is to be learned, for every head side by side; from no coefficients unless some are given."""
        composer = self.moving.composer()
        start = composer.initial().expand(len(heads), *composer.shape).clone() if lam is None else lam
        return TrainableWithHeads(ComposedEncoder(self.moving.tower, composer), heads, start=start)

    def sloped(
        self, subject: TrainableWithHeads, clean: Tensor, views: Tensor, labels: Tensor
    ) -> Generator[Step, None, TrainableWithHeads]:
        """The same heads, with coefficients from how the margins change at zero."""
        heads = [subject.head(_start_of(subject), run=run) for run in range(len(labels))]
        slopes = Slopes(subject.encoder, torch.cat([clean[None], views[:1]]), labels, heads)
        for share in slopes.taken():
            yield self.story.mark("slope", 0, 1, share=FIRST + LOOKING + SLOPING * share)
            if self.stop.is_set():
                break
        return self.subject(heads, slopes.coefficients().to(self.labels.device))

    def learn(
        self, subject: TrainableWithHeads, views: Tensor, labels: Tensor
    ) -> Generator[Step, None, LoopResult]:
        """Coefficients and head, for every labelling (R N) side by side."""
        config = replace(self.config, lr=self.method.stride * self.config.lr)
        seeds = [self.seed + run for run in range(len(labels))]
        steps = learn_few_shot(subject, views, labels, config=config, seeds=seeds, stop=self.stop)
        before = FIRST + LOOKING + SLOPING * self.method.slopes
        return (yield from self.story.follow(steps, since=before))

    def gone(self, ending: LoopResult) -> Tensor:
        """The coefficients of each run as far as the method goes with them."""
        return self.method.way * ending.values[LAM]

    def learned(
        self, subject: TrainableWithHeads, ending: LoopResult, looks: Sequence[Tensor], labels: Tensor
    ) -> list[Head]:
        """The head of each run (R N) with its coefficients: as it was learned, or fitted to them."""
        if not self.head.fit_after:
            return [subject.head(ending.values, run=run) for run in range(len(labels))]
        heads = []
        for lam, row in zip(self.gone(ending), labels, strict=True):
            heads += self.heads(self.evidence(looks, see=subject.encoder.at(lam).features), row[None])
        return heads

    def answers(
        self, encoder: ComposedEncoder, lam: Tensor, heads: Sequence[Head], clean: Tensor, fold: Tensor
    ) -> Tensor:
        """(N C): each image by the run that was held back from it, or by the run of all where none was."""
        return _in_turn(
            fold,
            lambda run, rows: heads[run].logits(
                self.moving.features(clean[rows], see=encoder.at(lam[run]).features)
            ),
        )

    # ---- what they are made of

    def evidence(
        self, looks: Sequence[Tensor], *, see: Callable[[Tensor], Tensor] | None = None
    ) -> LabelledFeatures:
        """The pictures, and views of them one after the other, as a head sees them, wide or not."""
        features = torch.cat([self.moving.features(look, see=see) for look in looks])
        text, scale = self.moving.words(self.scene.text, features.shape[1])
        return LabelledFeatures(features, self.labels.repeat(len(looks)), text, logit_scale=scale)

    def squares(self) -> Tensor:
        """The pictures as the tower takes them, (N 3 S S) in 0 … 255."""
        shape = self.scene.backbone.preprocessing
        return self.scene.support.squares(shape.size, resize=shape.resize, interpolation=shape.interpolation)

    def recipe(self, method: str, head: Head, lam: Tensor | None = None) -> Recipe:
        feature_stats = (
            self.moving.feature_stats
            if HEADS[FEW_SHOT_METHODS[method].head].feature_level is FeatureLevel.multi_scale
            else None
        )
        tensors = {**head.tensors, **(feature_stats.tensors if feature_stats else {})}
        return Recipe(
            self.moving.coefficients(lam),
            model=self.scene.backbone.name,
            model_fingerprint=self.scene.model_fingerprint,
            bank_fingerprint=self.scene.bank.fingerprint,
            classes=self.scene.support.classes,
            method=method,
            config={**self.config.as_dict(), "head": FEW_SHOT_METHODS[method].head},
            seed=self.seed,
            head={name: tensor.half() for name, tensor in tensors.items()},
        )

    def ended(
        self,
        method: str,
        recipe: Recipe,
        *,
        ending: LoopResult | None = None,
        verdict: Verdict | None = None,
    ) -> AdaptResult:
        sentence = f"{method} was asked for; whether it helps was not measured."
        return AdaptResult(
            recipe=recipe,
            outcome=ending.outcome if ending else Outcome.finished,
            reason=ending.reason if ending else "there was nothing to learn step by step.",
            history=self.story.history,
            seconds=self.story.seconds(),
            verdict=verdict or Verdict(method, helped=None, sentence=sentence),
            estimates=self.story.estimates,
        )


def _start_of(subject: TrainableWithHeads) -> dict[str, Tensor]:
    return {name: one.start for name, one in subject.tensors_to_learn.items()}


def _in_turn(fold: Tensor, told: Callable[[int, Tensor], Tensor]) -> Tensor:
    """(N C): what `told` (a run, images as a mask) says of each image, by the run that was held back from it.

    An image that no run was held back from is told by the last run, which saw all.
    """
    runs = int(fold.max()) + 1
    masks = [fold == run for run in range(runs)] + [fold == UNUSED]
    parts = [(mask, told(run, mask)) for run, mask in enumerate(masks) if bool(mask.any())]
    logits = parts[0][1].new_zeros(len(fold), parts[0][1].shape[1])
    for mask, part in parts:
        logits[mask] = part
    return logits
