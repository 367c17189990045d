"""Test-time adaptation, from pictures without labels to a result. Knows nothing of files, sessions or pages.

    look      the pictures, and for coefficients a few views of each, as far as the tower's frozen part goes
    learn     coefficients, by an objective without labels, and how far to go with them
    fit       a head: class centres anchored to the class names, or from these sure answers of every class
    check     what can be told without labels: the verdict

`auto` looks whether there are enough pictures, and of which classes. It learns coefficients of the norms by
sure answers, and fits a head: both use every class alike where all seem to be there, else each as often as
its centre is found. Without labels a check can find signs of harm, not prove a gain: `auto`, as any method
that is asked for, goes back to zero-shot where it shows signs of collapse.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.loop import Ending
from atlas_engine.adapt.norms import NormSubject
from atlas_engine.adapt.story import Story
from atlas_engine.adapt.subject import LAM, ComposedSubject, Subject
from atlas_engine.adapt.test_time import TestTimeConfig, Views, learn_unlabelled
from atlas_engine.adapt.validate import ZERO_SHOT
from atlas_engine.adapt.vitals import Vitals, alarm, all_there, nothing_to_learn, too_few, vitals_of
from atlas_engine.adapt.watch import Stop
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.blocks import KINDS
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.data.augment import STRONG, WEAK
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.anchored import anchored
from atlas_engine.heads.balanced import balanced
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.registry import Sight, find_head
from atlas_engine.moving import Moving
from atlas_engine.objectives.registry import find_objective
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

__all__ = [
    "AUTO",
    "METHODS",
    "NORMS",
    "ZERO_SHOT",
    "Method",
    "NormsResult",
    "PhotoScene",
    "adapt_norms",
    "adapt_test_time",
    "find_test_method",
]

AUTO = "auto"
CHUNK = 64
WAYS = (0.5, 1.0)  # shares of the way to what was learned: which one, the agreement of views tells
LOOKING = 0.3  # share of a run's work that goes into looking, about


class Method(NamedTuple):
    """A way to adapt without labels: what moves the coefficients, and which head is made afterwards."""

    objective: str | None
    head: str = "none"
    kinds: tuple[str, ...] = KINDS  # of blocks that move
    layout: Layout = Layout()
    stride: float = 1.0  # times the learning rate


_SURE = Method("entropy", "balanced", kinds=("norm",), layout=Layout(partitions=20), stride=50.0)

METHODS = MappingProxyType(
    {
        ZERO_SHOT: Method(None),
        "anchored": Method(None, "anchored"),
        "balanced": Method(None, "balanced"),
        "proportioned": Method(None, "proportioned"),
        "entropy+balanced": _SURE,
        "entropy+proportioned": _SURE._replace(objective="in-proportion", head="proportioned"),
        "ufm": Method("ufm"),
        "entropy": Method("entropy"),
        "sar": Method("sar"),
        "simclr": Method("simclr"),
    }
)
NORMS = ("ln-ufm", "ln-entropy", "ln-sar", "ln-simclr")
"""Baselines: the same objectives over the norm layers. They are no recipes of coefficients."""

WANTED, CAREFUL = "entropy+balanced", "entropy+proportioned"
"""What `auto` does where all classes seem to be among the pictures, and where they do not. They move the same
blocks in the same way, so that which of them it is may be seen later."""


def find_test_method(name: str) -> Method:
    """The method of that name, what `auto` wants for `auto`, or an error that says what to do."""
    if name in NORMS:
        raise ConfigError(
            f"{name} tunes norm layers, which no recipe of coefficients can hold. Call test_time_norms for "
            f"its answers, or choose '{name.removeprefix('ln-')}'."
        )
    if name != AUTO and name not in METHODS:
        raise ConfigError(unknown_name("objective", name, (*METHODS, AUTO)))
    return METHODS[WANTED if name == AUTO else name]


@dataclass(frozen=True, eq=False)
class PhotoScene:
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


def adapt_test_time(
    scene: PhotoScene, *, method: str, config: TestTimeConfig, seed: int, stop: Stop
) -> Generator[Step, None, AdaptResult]:
    """Yield steps of every phase, then return the result."""
    return (yield from _Adaptation(scene, method=method, config=config, seed=seed, stop=stop).run())


def adapt_norms(
    scene: PhotoScene, *, method: str, config: TestTimeConfig, seed: int, stop: Stop
) -> Generator[Step, None, NormsResult]:
    """The same objective over the norm layers of the same part of the tower: one of `NORMS`."""
    if method not in NORMS:
        raise ConfigError(unknown_name("baseline", method, NORMS))
    work = _Adaptation(scene, method=method.removeprefix("ln-"), config=config, seed=seed, stop=stop)
    return (yield from work.run_norms())


class _Adaptation:
    def __init__(
        self, scene: PhotoScene, *, method: str, config: TestTimeConfig, seed: int, stop: Stop
    ) -> None:
        self.scene, self.name, self.method = scene, method, find_test_method(method)
        self.config, self.seed, self.stop = config, seed, stop
        self.does = WANTED if method == AUTO else method
        self.sees = find_head(self.method.head).sees
        self.moving = Moving(
            scene.backbone,
            scene.bank,
            share=config.share,
            layout=self.method.layout,
            wide=self.sees is not Sight.said,
            kinds=self.method.kinds,
        )
        self.scale = scene.backbone.logit_scale
        self.story = Story()

    def run(self) -> Generator[Step, None, AdaptResult]:
        yield self.story.mark("look", 0, 1, share=0.0)
        clean = self.moving.activations(self.scene.squares.float() / 255)
        if self.sees is Sight.glimpsed:
            self.moving.get_used_to(clean)
        features = self.moving.features(clean)
        if self.name == ZERO_SHOT:
            return self.ended(ZERO_SHOT)
        reason = nothing_to_learn(features) or (too_few(len(features)) if self.name == AUTO else "")
        if reason:
            return self.ended(ZERO_SHOT, verdict=_kept_zero_shot(reason))
        if self.name == AUTO and not all_there(self.sure(features, counted=True).logits(features)):
            self.does = CAREFUL
        if METHODS[self.does].objective is None:
            return self.adapted(features, self.fitted(features))
        return (yield from self.mixed(clean, features))

    def mixed(self, clean: Tensor, before: Tensor) -> Generator[Step, None, AdaptResult]:
        """Learn coefficients, and keep them unless they show signs of collapse."""
        views = yield from self.look(clean)
        encoder = ComposedEncoder(self.moving.tower, self.moving.composer())
        steps = self.learn(self.subject(encoder, before.shape[1]), views, proportions=self.found(before))
        ending = yield from steps
        lam, reason = self.furthest(encoder, ending.values[LAM][0], views)
        reason = reason or (ending.reason.rstrip(".") if any(ending.collapsed) else "")
        if reason:
            return self.ended(ZERO_SHOT, ending=ending, verdict=_kept_zero_shot(reason))
        features = self.moving.features(clean, see=encoder.at(lam).features)
        return self.adapted(before, self.fitted(features), features=features, lam=lam, ending=ending)

    def adapted(
        self,
        before: Tensor,
        head: Probe | None,
        *,
        features: Tensor | None = None,
        lam: Tensor | None = None,
        ending: Ending | None = None,
    ) -> AdaptResult:
        """The result of a method that was not undone, for pictures as they were seen before and are now."""
        if self.name != AUTO or head is None:
            return self.ended(self.does, head, lam=lam, ending=ending)
        answers = head.logits(before if features is None else features).argmax(dim=1)
        changed = int((answers != self.by_names(before).argmax(dim=1)).sum())
        verdict = _adapted(self.does, changed, len(answers))
        return self.ended(self.does, head, lam=lam, ending=ending, verdict=verdict)

    def furthest(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> tuple[Tensor, str]:
        """The share of the way to λ on which two views of a picture agree most; and what is wrong there."""
        before = self.vitals(encoder, torch.zeros_like(lam), views)
        found = [(share * lam, self.vitals(encoder, share * lam, views)) for share in WAYS]
        best, after = max(found, key=lambda one: one[1].agreement)
        return best, alarm(before, after)

    def run_norms(self) -> Generator[Step, None, NormsResult]:
        views = yield from self.look(self.moving.activations(self.scene.squares.float() / 255))
        head, scale = self.class_head(self.scene.text.shape[1])
        subject = NormSubject(self.moving.tower, head, logit_scale=scale)
        ending = yield from self.learn(subject, views)
        tower = NormSubject(self.moving.tower, self.scene.text, logit_scale=self.scale)
        values = {name: value[0] for name, value in ending.values.items()}
        with torch.no_grad():
            logits = torch.cat([tower.logits(values, some) for some in torch.split(views.clean, CHUNK)])
        return NormsResult(logits.cpu(), ending.outcome, ending.reason, self.story.seconds())

    # ---- phases

    def look(self, clean: Tensor) -> Generator[Step, None, Views]:
        """Beside the pictures as they are, V weak and V strong views of each, as far as the cut."""
        squares, draw, count = self.scene.squares, runtime.generator(self.seed), self.config.views
        weak, strong = [], []
        for index in range(count):
            yield self.story.mark("look", index, count, share=LOOKING * index / count)
            weak.append(self.moving.activations(WEAK(squares, draw)))
            strong.append(self.moving.activations(STRONG(squares, draw)))
        return Views(clean, torch.stack(weak), torch.stack(strong))

    def learn(
        self, subject: Subject, views: Views, *, proportions: Tensor | None = None
    ) -> Generator[Step, None, Ending]:
        objective = METHODS[self.does].objective
        assert objective is not None
        steps = learn_unlabelled(
            subject,
            views,
            objective=objective,
            config=replace(self.config, lr=self.method.stride * self.config.lr),
            trust=self.zero_shot if self.on_features else None,
            proportions=proportions,
            seed=self.seed,
            stop=self.stop,
        )
        return (yield from self.story.follow(steps, since=LOOKING))

    # ---- what they are made of

    @property
    def on_features(self) -> bool:
        return self.method.objective is not None and find_objective(self.method.objective).on_features

    def class_head(self, width: int) -> tuple[Tensor, float]:
        """What turns features into what the objective wants: class scores, or the features themselves."""
        if self.on_features:
            return torch.eye(width, device=self.scene.text.device), 1.0
        return self.moving.words(self.scene.text, width)

    def subject(self, encoder: ComposedEncoder, width: int) -> ComposedSubject:
        head, scale = self.class_head(width)
        return ComposedSubject(encoder, head, logit_scale=scale, start=encoder.composer.initial()[None])

    def said(self, features: Tensor) -> Tensor:
        """What features (N D or wider) tell in the space of sentences."""
        return F.normalize(features[:, : self.scene.text.shape[1]], dim=-1)

    def by_names(self, features: Tensor) -> Tensor:
        return text_logits(self.said(features), self.scene.text, logit_scale=self.scale)

    def zero_shot(self, activations: Tensor) -> Tensor:
        return self.by_names(self.moving.features(activations))

    def centres(self, features: Tensor) -> Probe:
        return anchored(self.said(features), self.scene.text, logit_scale=self.scale)

    def found(self, features: Tensor) -> Tensor:
        """How often each class is there (C), by the class centres among the pictures."""
        return self.centres(features).logits(self.said(features)).softmax(dim=1).mean(dim=0)

    def fitted(self, features: Tensor) -> Probe | None:
        """The method's head for these pictures, if it has one."""
        kind = METHODS[self.does].head
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
        return balanced(features, start, logit_scale=scale, proportions=proportions)

    @torch.no_grad()
    def vitals(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> Vitals:
        composition = encoder.at(lam)

        def logits(activations: Tensor) -> Tensor:
            parts = [composition.features(some) for some in torch.split(activations, CHUNK)]
            return self.by_names(torch.cat(parts))

        return vitals_of(logits(views.clean), logits(views.weak[0]), logits(views.strong[0]))

    def recipe(self, method: str, head: Probe | None = None, lam: Tensor | None = None) -> Recipe:
        kind = METHODS[method].head
        usual = self.moving.usual if find_head(kind).sees is Sight.glimpsed else None
        tensors = {} if head is None else {**head.tensors, **(usual.tensors if usual else {})}
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
        ending: Ending | None = None,
        verdict: Verdict | None = None,
    ) -> AdaptResult:
        sentence = f"{method} was asked for; without labels nobody can measure whether it helps."
        return AdaptResult(
            recipe=self.recipe(method, head, lam),
            outcome=ending.outcome if ending else Outcome.finished,
            reason=ending.reason if ending else "there was nothing to learn step by step.",
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
