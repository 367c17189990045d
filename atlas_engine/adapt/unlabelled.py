"""Test-time adaptation: views of pictures without labels, batch by batch. Knows nothing of files or text.

The views are made once and kept, at whatever depth of the tower they are cut. Pictures come in turn, each
once an epoch. For an objective that trusts some, these are a quarter of each batch, with the class they were
taken for; whom to trust is asked anew every epoch. There is no place for a true label.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.collapse import (
    AnswerStats,
    answer_stats,
    collapse_reason,
    covers_all_classes,
    nothing_to_learn_reason,
    too_few_classes,
    too_few_images,
    uninformative_names,
)
from atlas_engine.adapt.guards import RunGuard, StopFlag, StopRun
from atlas_engine.adapt.methods import (
    AUTO,
    CAREFUL,
    NORM_BASELINES,
    UNLABELLED_METHODS,
    WANTED,
    ZERO_SHOT,
    find_unlabelled_method,
)
from atlas_engine.adapt.optimise import BatchRequest, LoopResult, OptimiseConfig, Score, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.trainable import LAM, Trainable, TrainableCoefficients, TrainableNorms
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.config import setting
from atlas_engine.data.augment import STRONG, WEAK
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.registry import FeatureLevel, find_head
from atlas_engine.heads.unlabelled import estimate_proportions, fit_anchored_head, fit_balanced_head
from atlas_engine.objectives.base import Batch
from atlas_engine.objectives.registry import find_objective
from atlas_engine.objectives.ufm import UNTRUSTED, trusted_labels
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

__all__ = [
    "NormsResult",
    "TestTimeConfig",
    "UnlabelledContext",
    "UnlabelledSampler",
    "Views",
    "adapt_norms",
    "adapt_unlabelled",
    "effective_config",
    "kept_zero_shot",
    "learn_unlabelled",
]

TRUSTED_PART = 4  # one in four of a batch
CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class TestTimeConfig(OptimiseConfig):
    """How coefficients are learned from pictures without labels."""

    __test__ = False  # no test class, whatever pytest reads into its name

    steps: int = setting(16, help="optimiser steps, or more where the epochs take more", low=0, high=100_000)
    epochs: int = setting(5, help="times that each picture is looked at, at least", low=0, high=1000)
    lr: float = setting(0.02, help="learning rate of the first step", low=0.0, high=100.0)
    batch: int = setting(32, help="pictures a step; all of them where there are fewer", low=1)
    views: int = setting(
        2, help="weak and strong views of each picture, made once and kept", low=1, high=1000
    )
    share: float = setting(
        0.5, help="share of the tower's weights, from its end, that may move; 1 for all", low=0.0, high=1.0
    )


@dataclass(frozen=True, eq=False)
class Views:
    """The pictures as they are (N …), and V weak and strong views of each (V N …)."""

    clean: Tensor
    weak: Tensor
    strong: Tensor


def learn_unlabelled(
    subject: Trainable,
    views: Views,
    *,
    objective: str,
    config: TestTimeConfig,
    proportions: Tensor | None = None,
    score: Score | None = None,
    seed: int = 0,
    stop: StopFlag | None = None,
) -> Generator[Step, None, LoopResult]:
    """Make an objective small over the views; its `loop_defaults` apply.

    `proportions` (C) are for an objective that needs them.
    """
    row = find_objective(objective)
    asked = effective_config(config, objective, pictures=len(views.clean))
    source = UnlabelledSampler(views, size=config.batch, trusting=row.needs_trusted)
    loss = row.make(proportions=proportions) if row.needs_proportions else row.make()
    return (yield from optimise(subject, loss, source, config=asked, seeds=(seed,), score=score, stop=stop))


def effective_config(config: TestTimeConfig, objective: str, *, pictures: int) -> TestTimeConfig:
    """What a run really goes by: steps for all epochs, and what the objective asks of the loop.

    An objective's wish yields to a setting that is not the usual one. Five epochs of 100 pictures in batches
    of 32 are 16 steps; of 1,000 they are 157. No steps at all stay none.
    """
    batch = max(1, min(config.batch, pictures))
    steps = max(config.steps, math.ceil(config.epochs * pictures / batch)) if config.steps else 0
    usual = TestTimeConfig()
    wishes = find_objective(objective).loop_defaults
    free = {name: wish for name, wish in wishes.items() if getattr(config, name) == getattr(usual, name)}
    changes: dict[str, Any] = {"steps": steps, **free}
    return replace(config, **changes)


class UnlabelledSampler:
    """A source: pictures in turn; where some are trusted, a quarter of them, and others in turn."""

    def __init__(self, views: Views, *, size: int, trusting: bool = False) -> None:
        self._views = views
        self._size = min(size, len(views.clean))
        self._trusted = self._size // TRUSTED_PART if trusting else 0  # of a batch
        self._waiting = torch.empty(0, dtype=torch.long)
        self._labels = torch.full((len(views.clean),), UNTRUSTED)

    def __call__(self, request: BatchRequest) -> Batch:
        """The batch of one step; no picture is in it twice."""
        if len(set(self._waiting.tolist())) < self._size:
            self._begin_epoch(request)
        trusted = self._draw_trusted(request.generator)
        others = self._take_others(self._size - len(trusted), beside=trusted)
        rows = torch.cat([trusted, others])
        labels = torch.full((len(rows),), UNTRUSTED)
        labels[: len(trusted)] = self._labels[trusted]
        view = torch.randint(len(self._views.weak), (len(rows),), generator=request.generator)
        device = self._views.clean.device
        view, rows = view.to(device), rows.to(device)
        return Batch(
            self._views.weak[view, rows],
            labels=labels.to(device),
            strong=self._views.strong[view, rows],
            progress=request.index / request.of,
        )

    def _begin_epoch(self, request: BatchRequest) -> None:
        """Line all pictures up anew, behind those left over; ask the model as it stands whom to trust."""
        if self._trusted:
            parts = torch.split(self._views.clean, CHUNK)
            self._labels = trusted_labels(torch.cat([request.logits_fn(part) for part in parts])).cpu()
        order = torch.randperm(len(self._views.clean), generator=request.generator)
        self._waiting = torch.cat([self._waiting, order])

    def _draw_trusted(self, generator: torch.Generator) -> Tensor:
        chosen = (self._labels != UNTRUSTED).nonzero().squeeze(1)
        return chosen[torch.randperm(len(chosen), generator=generator)[: self._trusted]]

    def _take_others(self, count: int, *, beside: Tensor) -> Tensor:
        """The first `count` different ones in line; who is in the batch already has had their turn."""
        there, taken, later = set(beside.tolist()), list[int](), list[int]()
        for row in self._waiting.tolist():
            if row in there:
                continue
            (later if row in taken or len(taken) == count else taken).append(row)
        self._waiting = torch.tensor(later, dtype=torch.long)
        return torch.tensor(taken, dtype=torch.long)


# ---- Test-time adaptation, from pictures without labels to a result. Knows nothing of files, sessions or
# pages. look the pictures, and for coefficients a few views of each, as far as the tower's frozen part
# goes learn coefficients, by an objective without labels, and how far to go with them fit a head: class
# centres anchored to the class names, or from these sure answers of every class check what can be told
# without labels: the verdict `auto` looks whether there are enough pictures, of which classes, and whether
# the class names tell them apart. It learns coefficients of the norms by sure answers, and fits a head:
# both use every class alike where all seem to be there, else each as often as its centre is found. Without
# labels a check can find signs of harm, not prove a gain: `auto`, as any method that is asked for, goes
# back to zero-shot where it shows signs of collapse.
IMAGES_AT_ONCE = 64
WAYS = (0.5, 1.0)  # shares of the way to what was learned: which one, the agreement of views tells
NO_STEPS = "there was nothing to learn step by step."
ROUNDS = 3  # of asking for the proportions, to see whether all classes are there
LOOKING = 0.3  # share of a run's work that goes into looking, about


@dataclass(frozen=True, eq=False)
class UnlabelledContext:
    """Who takes part: a model, a bank that was made for it, pictures, and the embeddings of class names.

    There is no place for labels.
    """

    backbone: Backbone
    bank: TaskVectorBank
    squares: Tensor  # (N 3 S S) uint8, as the tower takes them
    classes: tuple[str, ...]
    text: Tensor  # (C D)
    model_fingerprint: str


@dataclass(frozen=True, eq=False)
class NormsResult:
    """What a baseline says of the pictures it was adapted to, and how it came about."""

    logits: Tensor  # (N C) on the CPU
    outcome: Outcome
    reason: str
    seconds: float


def adapt_unlabelled(
    scene: UnlabelledContext, *, method: str, config: TestTimeConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, AdaptResult]:
    """Yield steps of every phase, then return the result."""
    return (yield from _Adaptation(scene, method=method, config=config, seed=seed, stop=stop).run())


def adapt_norms(
    scene: UnlabelledContext, *, method: str, config: TestTimeConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, NormsResult]:
    """The same objective over the norm layers of the same part of the tower: one of `NORM_BASELINES`."""
    if method not in NORM_BASELINES:
        raise ConfigError(unknown_name("baseline", method, NORM_BASELINES))
    work = _Adaptation(scene, method=method.removeprefix("ln-"), config=config, seed=seed, stop=stop)
    return (yield from work.run_norms())


def kept_zero_shot(
    scene: UnlabelledContext, *, because: str, config: TestTimeConfig, seed: int = 0
) -> AdaptResult:
    """The result of having learned nothing, and why."""
    work = _Adaptation(scene, method=ZERO_SHOT, config=config, seed=seed, stop=None)
    return work.ended(ZERO_SHOT, verdict=_kept_zero_shot(because))


class _Adaptation:
    def __init__(
        self,
        scene: UnlabelledContext,
        *,
        method: str,
        config: TestTimeConfig,
        seed: int,
        stop: StopFlag | None,
    ) -> None:
        self.scene, self.name, self.method = scene, method, find_unlabelled_method(method)
        self.config, self.seed, self.stop = self.settled(config), seed, stop
        self.does = WANTED if method == AUTO else method
        self.feature_level = find_head(self.method.head).feature_level
        self.moving = TrainablePart(
            scene.backbone,
            scene.bank,
            share=config.share,
            layout=self.method.layout,
            wide=self.feature_level is not FeatureLevel.projected,
            kinds=self.method.kinds,
        )
        self.scale = scene.backbone.logit_scale
        self.story = Progress()
        self.watch = RunGuard(deadline_seconds=config.deadline_seconds, stop=stop, clock=time.monotonic)

    def run(self) -> Generator[Step, None, AdaptResult]:
        yield self.story.mark("look", 0, 1, share=0.0)
        try:
            return (yield from self.attempt())
        except StopRun as halt:
            verdict = _kept_zero_shot("the run ended before anything was learned")
            return self.ended(ZERO_SHOT, outcome=halt.outcome, reason=halt.reason, verdict=verdict)

    def attempt(self) -> Generator[Step, None, AdaptResult]:
        clean = self.seen(lambda squares: squares.float() / 255)
        if self.feature_level is FeatureLevel.multi_scale:
            self.moving.fit_feature_stats(clean)
        features = self.moving.features(clean)
        if self.name == ZERO_SHOT:
            return self.ended(ZERO_SHOT)
        reason = nothing_to_learn_reason(self.projected(features)) or (
            self.doubts(features) if self.name == AUTO else ""
        )
        if reason:
            return self.ended(ZERO_SHOT, verdict=_kept_zero_shot(reason))
        if UNLABELLED_METHODS[self.does].objective is None:
            return self.adapted(features, self.fitted(features))
        return (yield from self.mixed(clean, features))

    def doubts(self, features: Tensor) -> str:
        """Why `auto` had better learn nothing; where there is no reason, `does` is what it will do."""
        complete = covers_all_classes(self.found(features, rounds=ROUNDS))
        self.does = WANTED if complete else CAREFUL
        return too_few_images(len(features)) or uninformative_names(
            self.by_names(features), complete=complete
        )

    def mixed(self, clean: Tensor, before: Tensor) -> Generator[Step, None, AdaptResult]:
        """Learn coefficients and fit a head, and keep both unless they show signs of collapse."""
        views = yield from self.look(clean)
        encoder = ComposedEncoder(self.moving.tower, self.moving.composer())
        steps = self.learn(self.subject(encoder, before.shape[1]), views, proportions=self.found(before))
        ending = yield from steps
        lam, reason = self.furthest(encoder, ending.values[LAM][0], views)
        if any(ending.collapsed):
            reason = ending.reason.rstrip(".")
        if not ending.steps:
            reason = "the run ended before anything was learned"
        if reason:
            verdict = _kept_zero_shot(reason)
            return self.ended(ZERO_SHOT, outcome=ending.outcome, reason=ending.reason, verdict=verdict)
        features = self.moving.features(clean, see=encoder.at(lam).features)
        return self.adapted(before, self.fitted(features), features=features, lam=lam, ending=ending)

    def adapted(
        self,
        before: Tensor,
        head: Probe | None,
        *,
        features: Tensor | None = None,
        lam: Tensor | None = None,
        ending: LoopResult | None = None,
    ) -> AdaptResult:
        """The result for pictures as they were seen before and are now: zero-shot where answers crowd."""
        outcome, reason = (ending.outcome, ending.reason) if ending else (Outcome.finished, NO_STEPS)
        seen = before if features is None else features
        answers, names = self.by_names(seen) if head is None else head.logits(seen), self.by_names(before)
        crowd = too_few_classes(answers)
        if crowd:
            verdict = _kept_zero_shot(crowd)
            return self.ended(ZERO_SHOT, outcome=outcome, reason=reason, verdict=verdict)
        changed = int((answers.argmax(dim=1) != names.argmax(dim=1)).sum())
        told = _adapted(self.does, changed, len(answers)) if self.name == AUTO else None
        return self.ended(self.does, head, lam=lam, outcome=outcome, reason=reason, verdict=told)

    def furthest(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> tuple[Tensor, str]:
        """The share of the way to λ on which two views of a picture agree most; and what is wrong there."""
        before = self.vitals(encoder, torch.zeros_like(lam), views)
        found = [(share * lam, self.vitals(encoder, share * lam, views)) for share in WAYS]
        best, after = max(found, key=lambda one: one[1].agreement)
        return best, collapse_reason(before, after)

    def run_norms(self) -> Generator[Step, None, NormsResult]:
        """The plain baseline: no check of ours, but that there is something to learn from."""
        clean = self.moving.activations(self.scene.squares.float() / 255)
        features = self.moving.features(clean)
        same = nothing_to_learn_reason(features)
        if same:
            return self.by_zero_shot(features, Outcome.finished, f"zero-shot was kept, because {same}.")
        try:
            views = yield from self.look(clean)
        except StopRun as halt:
            return self.by_zero_shot(features, halt.outcome, halt.reason)
        head, scale = self.class_head(self.scene.text.shape[1])
        subject = TrainableNorms(self.moving.tower, head, logit_scale=scale)
        ending = yield from self.learn(subject, views)
        tower = TrainableNorms(self.moving.tower, self.scene.text, logit_scale=self.scale)
        values = {name: value[0] for name, value in ending.values.items()}
        with torch.no_grad():
            logits = torch.cat(
                [tower.logits(values, some) for some in torch.split(views.clean, IMAGES_AT_ONCE)]
            )
        return NormsResult(logits.cpu(), ending.outcome, ending.reason, self.story.seconds())

    def by_zero_shot(self, features: Tensor, outcome: Outcome, reason: str) -> NormsResult:
        return NormsResult(self.by_names(features).cpu(), outcome, reason, self.story.seconds())

    # ---- phases

    def look(self, clean: Tensor) -> Generator[Step, None, Views]:
        """Beside the pictures as they are, V weak and V strong views of each, as far as the cut."""
        draw, count = runtime.generator(self.seed), self.config.views
        weak, strong = [], []
        for index in range(count):
            yield self.story.mark("look", index, count, share=LOOKING * index / count)
            weak.append(self.seen(lambda squares: WEAK(squares, draw)))
            strong.append(self.seen(lambda squares: STRONG(squares, draw)))
        return Views(clean, torch.stack(weak), torch.stack(strong))

    def seen(self, view: Callable[[Tensor], Tensor]) -> Tensor:
        """A view of every picture as far as the cut, some pictures at a time."""
        kept = []
        for some in torch.split(self.scene.squares, IMAGES_AT_ONCE):
            self.watch.check()
            kept.append(self.moving.activations(view(some)))
        return torch.cat(kept)

    def learn(
        self, subject: Trainable, views: Views, *, proportions: Tensor | None = None
    ) -> Generator[Step, None, LoopResult]:
        objective, limit = UNLABELLED_METHODS[self.does].objective, self.config.deadline_seconds
        assert objective is not None
        left = None if limit is None else max(0.0, limit - self.watch.seconds())
        steps = learn_unlabelled(
            subject,
            views,
            objective=objective,
            config=replace(self.config, deadline_seconds=left),
            proportions=proportions,
            seed=self.seed,
            stop=self.stop,
        )
        return (yield from self.story.follow(steps, since=LOOKING))

    # ---- what they are made of

    def settled(self, config: TestTimeConfig) -> TestTimeConfig:
        """What the method really goes by, as its recipe tells it."""
        own = replace(config, lr=self.method.stride * config.lr)
        objective = self.method.objective
        return effective_config(own, objective, pictures=len(self.scene.squares)) if objective else own

    @property
    def on_features(self) -> bool:
        return self.method.objective is not None and find_objective(self.method.objective).on_features

    def class_head(self, width: int) -> tuple[Tensor, float]:
        """What turns features into what the objective wants: class scores, or the features themselves."""
        if self.on_features:
            return torch.eye(width, device=self.scene.text.device), 1.0
        return self.moving.words(self.scene.text, width)

    def subject(self, encoder: ComposedEncoder, width: int) -> TrainableCoefficients:
        head, scale = self.class_head(width)
        return TrainableCoefficients(encoder, head, logit_scale=scale, start=encoder.composer.initial()[None])

    def projected(self, features: Tensor) -> Tensor:
        """What features (N D or wider) tell in the space of sentences."""
        return F.normalize(features[:, : self.scene.text.shape[1]], dim=-1)

    def by_names(self, features: Tensor) -> Tensor:
        return text_logits(self.projected(features), self.scene.text, logit_scale=self.scale)

    def centres(self, features: Tensor) -> Probe:
        return fit_anchored_head(self.projected(features), self.scene.text, logit_scale=self.scale)

    def found(self, features: Tensor, *, rounds: int = 1) -> Tensor:
        """How often each class is there (C), by the class centres among the pictures."""
        return estimate_proportions(self.centres(features).logits(self.projected(features)), rounds=rounds)

    def fitted(self, features: Tensor) -> Probe | None:
        """The method's head for these pictures, if it has one."""
        kind = UNLABELLED_METHODS[self.does].head
        if kind == "none":
            return None
        return (
            self.centres(features) if kind == "anchored" else self.sure(features, counted=kind != "balanced")
        )

    def sure(self, features: Tensor, *, counted: bool) -> Probe:
        """Sure answers that use every class alike, or each as often as its centre is found."""
        centres, width = self.centres(features), features.shape[1]
        _, scale = self.moving.words(self.scene.text, width)
        start = centres.widened(width, factor=scale / self.scale)
        proportions = self.found(features) if counted else None
        return fit_balanced_head(features, start, logit_scale=scale, proportions=proportions)

    @torch.no_grad()
    def vitals(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> AnswerStats:
        composition = encoder.at(lam)

        def logits(activations: Tensor) -> Tensor:
            parts = [composition.features(some) for some in torch.split(activations, IMAGES_AT_ONCE)]
            return self.by_names(torch.cat(parts))

        return answer_stats(logits(views.clean), logits(views.weak[0]), logits(views.strong[0]))

    def recipe(self, method: str, head: Probe | None = None, lam: Tensor | None = None) -> Recipe:
        kind = UNLABELLED_METHODS[method].head
        feature_stats = (
            self.moving.feature_stats if find_head(kind).feature_level is FeatureLevel.multi_scale else None
        )
        tensors = {} if head is None else {**head.tensors, **(feature_stats.tensors if feature_stats else {})}
        return Recipe(
            self.moving.coefficients(lam),
            model=self.scene.backbone.name,
            model_fingerprint=self.scene.model_fingerprint,
            bank_fingerprint=self.scene.bank.fingerprint,
            classes=self.scene.classes,
            method=method,
            config={**self.config.as_dict(), "head": kind},
            seed=self.seed,
            head={name: _kept(name, tensor) for name, tensor in tensors.items()},
        )

    def ended(
        self,
        method: str,
        head: Probe | None = None,
        *,
        lam: Tensor | None = None,
        outcome: Outcome = Outcome.finished,
        reason: str = NO_STEPS,
        verdict: Verdict | None = None,
    ) -> AdaptResult:
        sentence = f"{method} was asked for; without labels nobody can measure whether it helps."
        return AdaptResult(
            recipe=self.recipe(method, head, lam),
            outcome=outcome,
            reason=reason,
            history=self.story.history,
            seconds=self.story.seconds(),
            verdict=verdict or Verdict(method, helped=None, sentence=sentence),
        )


def _kept(name: str, tensor: Tensor) -> Tensor:
    """A bias is short and may be large beside what it decides."""
    return tensor if name == "bias" else tensor.half()


def _kept_zero_shot(reason: str) -> Verdict:
    return Verdict(ZERO_SHOT, helped=False, sentence=f"Zero-shot was kept, because {reason}.")


def _adapted(method: str, changed: int, of: int) -> Verdict:
    """What `auto` says of a result that it keeps."""
    return Verdict(
        method,
        helped=None,
        sentence=f"Adapted to these pictures: {changed} of {of} answers changed. Without labels nobody can "
        "measure whether that helps.",
    )
