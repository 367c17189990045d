"""Few-shot adaptation, from labelled pictures to a result. Knows nothing of files, sessions or pages.

    preview   a head on zero-shot features, at once
    look      random views of the pictures, each once, as far as the frozen part of the tower goes
    slope     coefficients from how the margins change at zero, and a head on what they make of the pictures
    learn     both together from there, for all pictures and beside it without each part of them
    verdict   who was right on what was held out

`auto` does all of that and keeps zero-shot where nothing beats it; any other method does what it is told.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor

from atlas_engine import runtime
from atlas_engine.adapt.few_shot import FewShotConfig, few_shot
from atlas_engine.adapt.headed import HeadedSubject
from atlas_engine.adapt.loop import Ending
from atlas_engine.adapt.slopes import Slopes
from atlas_engine.adapt.story import Story
from atlas_engine.adapt.subject import LAM
from atlas_engine.adapt.validate import ZERO_SHOT, decide, estimates_of, held_out, labellings
from atlas_engine.adapt.watch import Stop
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.data.augment import Augment
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import Evidence, Head
from atlas_engine.heads.registry import HEADS
from atlas_engine.moving import Moving
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

__all__ = ["AUTO", "METHODS", "Method", "Scene", "adapt_few_shot", "find_method"]

AUTO = "auto"
CHUNK = 64
SLOPE_VIEWS = 2  # of each picture, the plain one first
FIRST, LOOKING, SLOPING = 0.02, 0.13, 0.15  # shares of a run's work, about


class Method(NamedTuple):
    """A way to adapt: which head, and how coefficients come to it: by their slopes, by learning, or not."""

    head: str
    slopes: bool = False
    learns: bool = False
    layout: Layout | None = None

    @property
    def mixes(self) -> bool:
        """Whether task vectors are mixed at all."""
        return self.slopes or self.learns


METHODS = MappingProxyType(
    {
        ZERO_SHOT: Method("none"),
        "tip": Method("tip"),
        "tip-f": Method("tip-f"),
        "lpp": Method("lpp"),
        "linear-probe": Method("linear-probe"),
        "text-probe": Method("text-probe"),
        "slope+text-probe": Method("text-probe", slopes=True),
        "atlas-iso": Method("none", learns=True, layout=Layout("isotropic")),
        "atlas": Method("none", learns=True),
        "atlas+tip": Method("tip", learns=True),
        "atlas+lpp": Method("lpp", learns=True),
        "atlas+text-probe": Method("text-probe", slopes=True, learns=True),
    }
)
PREVIEW, SLOPE, WANTED = "text-probe", "slope+text-probe", "atlas+text-probe"
"""What `auto` shows first, then, and at last; it keeps whichever did best on what was held out."""
WARM = 0.4  # of the learning rate, where slopes have given a start


def find_method(name: str) -> Method:
    """The method of that name, what `auto` wants for `auto`, or an error that offers the nearest."""
    if name != AUTO and name not in METHODS:
        raise ConfigError(unknown_name("method", name, (*METHODS, AUTO)))
    return METHODS[WANTED if name == AUTO else name]


@dataclass(frozen=True, eq=False)
class Scene:
    """Who takes part: a model, a bank that was made for it, pictures, and the embeddings of their classes."""

    backbone: Backbone
    bank: TaskVectorBank
    support: Support
    text: Tensor  # (C D)
    model_fingerprint: str


def adapt_few_shot(
    scene: Scene, *, method: str, config: FewShotConfig, layout: Layout | None, seed: int, stop: Stop
) -> Generator[Step, None, AdaptResult]:
    """Yield steps of every phase, then return the result."""
    adaptation = _Adaptation(scene, method=method, config=config, layout=layout, seed=seed, stop=stop)
    return (yield from adaptation.run())


class _Adaptation:
    def __init__(
        self,
        scene: Scene,
        *,
        method: str,
        config: FewShotConfig,
        layout: Layout | None,
        seed: int,
        stop: Stop,
    ) -> None:
        self.scene, self.name, self.method = scene, method, find_method(method)
        self.config, self.seed, self.stop = config, seed, stop
        self.layout = layout or self.method.layout or Layout()
        self.story = Story()
        self.moving = Moving(
            scene.backbone,
            scene.bank,
            share=config.share,
            layout=self.layout,
            wide=HEADS[self.method.head].wide,
        )
        self.labels = torch.tensor(scene.support.labels, device=scene.backbone.device)

    def run(self) -> Generator[Step, None, AdaptResult]:
        pixels = self.squares()
        clean = self.moving.activations(pixels.float() / 255)
        if HEADS[self.method.head].deep:
            self.moving.get_used_to(clean)
        evidence = self.evidence(self.moving.features(clean))
        if not self.method.mixes:
            return self.ended(self.name, self.recipe(self.name, HEADS[self.method.head].alone(evidence)))
        run = self.checked if self.name == AUTO else self.unchecked
        return (yield from run(pixels, clean, evidence))

    def unchecked(
        self, pixels: Tensor, clean: Tensor, evidence: Evidence
    ) -> Generator[Step, None, AdaptResult]:
        """The method that was asked for, whether it helps or not."""
        views = yield from self.look(pixels)
        labels = self.labels[None]
        subject = yield from self.started(evidence, clean, views, labels)
        if not self.method.learns:
            return self.ended(self.name, self.adapted(self.name, subject, _start_of(subject)))
        ending = yield from self.learn(subject, views, labels)
        return self.ended(self.name, self.adapted(self.name, subject, ending.values), ending=ending)

    def checked(
        self, pixels: Tensor, clean: Tensor, evidence: Evidence
    ) -> Generator[Step, None, AdaptResult]:
        """One answer after the other, each beside what it says of pictures held out; the best is kept."""
        fold = held_out(evidence, folds=self.config.folds, seed=self.seed)
        answers = yield from self.preview(evidence, fold)
        views = yield from self.look(pixels)
        labels = labellings(self.labels, fold)
        subject = yield from self.started(evidence, clean, views, labels)
        start = _start_of(subject)
        known = {SLOPE: self.adapted(SLOPE, subject, start)}
        answers[SLOPE] = self.answers(subject, start, clean, fold)
        self.story.estimates = estimates_of(answers, self.labels, fold)
        yield self.story.mark("slope", 1, 1, share=FIRST + LOOKING + SLOPING, preview=known[SLOPE])
        ending = yield from self.learn(subject, views, labels)
        known[WANTED] = self.adapted(WANTED, subject, ending.values)
        answers[WANTED] = self.answers(subject, ending.values, clean, fold)
        self.story.estimates = estimates_of(answers, self.labels, fold)
        verdict = decide(answers, self.labels, fold)
        for name in (ZERO_SHOT, PREVIEW):
            known[name] = self.recipe(name, HEADS[METHODS[name].head].alone(evidence))
        return self.ended(verdict.kept, known[verdict.kept], ending=ending, verdict=verdict)

    # ---- phases

    def look(self, pixels: Tensor) -> Generator[Step, None, Tensor]:
        """(V, N, …): random views of each picture, as far as the cut."""
        draw = runtime.generator(self.seed)
        needed = -(-self.config.steps * self.config.batch // len(pixels)) if self.method.learns else 0
        count = max(min(self.config.views, needed), SLOPE_VIEWS - 1)
        kept = []
        for index in range(count):
            yield self.story.mark("look", index, count, share=FIRST + LOOKING * index / count)
            kept.append(self.moving.activations(Augment(jitter=0.0)(pixels, draw)))
        return torch.stack(kept)

    def preview(self, evidence: Evidence, fold: Tensor) -> Generator[Step, None, dict[str, Tensor]]:
        """Held-out logits of zero-shot and of the head alone."""
        make = HEADS[PREVIEW].alone
        answers = {ZERO_SHOT: HEADS["none"].alone(evidence).logits(evidence.features)}
        answers[PREVIEW] = answers[ZERO_SHOT].clone()
        for part, labels in enumerate(labellings(self.labels, fold)[:-1]):
            rows = fold == part
            answers[PREVIEW][rows] = make(evidence.labelled(labels)).logits(evidence.features[rows])
        self.story.estimates = estimates_of(answers, self.labels, fold)
        recipe = self.recipe(PREVIEW, make(evidence))
        yield self.story.mark("preview", 0, 1, share=FIRST, preview=recipe)
        return answers

    def started(
        self, evidence: Evidence, clean: Tensor, views: Tensor, labels: Tensor
    ) -> Generator[Step, None, HeadedSubject]:
        """What is to be learned, for every labelling (R N) side by side, where it begins."""
        composer = self.moving.composer()
        encoder = ComposedEncoder(self.moving.tower, composer)
        make = HEADS[self.method.head].start
        lam = composer.initial().expand(len(labels), *composer.shape).clone()
        heads = [make(evidence.labelled(row)) for row in labels]
        if self.method.slopes:
            slopes = Slopes(encoder, torch.cat([clean[None], views[: SLOPE_VIEWS - 1]]), labels, heads)
            for share in slopes.taken():
                yield self.story.mark("slope", 0, 1, share=FIRST + LOOKING + SLOPING * share)
                if self.stop.is_set():
                    break
            lam = slopes.coefficients().to(lam.device)
            heads = []
            for run, row in enumerate(labels):
                features = self.moving.features(clean, see=encoder.at(lam[run]).features)
                heads.append(make(self.evidence(features).labelled(row)))
        return HeadedSubject(encoder, heads, start=lam)

    def learn(self, subject: HeadedSubject, views: Tensor, labels: Tensor) -> Generator[Step, None, Ending]:
        """Coefficients and head, for every labelling (R N) side by side."""
        warm = WARM if self.method.slopes else 1.0
        config = replace(self.config, lr=warm * self.config.lr)
        seeds = [self.seed + run for run in range(len(labels))]
        steps = few_shot(subject, views, labels, config=config, seeds=seeds, stop=self.stop)
        before = FIRST + LOOKING + SLOPING * self.method.slopes
        return (yield from self.story.follow(steps, since=before))

    @torch.no_grad()
    def answers(
        self, subject: HeadedSubject, values: Mapping[str, Tensor], clean: Tensor, fold: Tensor
    ) -> Tensor:
        """(N C): each image by the run that was held back from it, or by the run of all where none was."""
        forward = subject.at(values)
        runs = values[LAM].shape[0]
        logits = self.scene.text.new_zeros(len(fold), len(self.scene.text))
        for run in range(runs):
            rows = fold == (run if run < runs - 1 else -1)
            if bool(rows.any()):
                logits[rows] = torch.cat(
                    [forward.logits_fn(run)(part) for part in torch.split(clean[rows], CHUNK)]
                )
        return logits

    # ---- what they are made of

    def evidence(self, features: Tensor) -> Evidence:
        """The pictures as a head sees them: of the width of the features, wide or not."""
        text, scale = self.moving.words(self.scene.text, features.shape[1])
        return Evidence(features, self.labels, text, logit_scale=scale)

    def squares(self) -> Tensor:
        """The pictures as the tower takes them, (N 3 S S) in 0 … 255."""
        shape = self.scene.backbone.preprocessing
        return self.scene.support.squares(shape.size, resize=shape.resize, interpolation=shape.interpolation)

    def adapted(self, method: str, subject: HeadedSubject, values: Mapping[str, Tensor]) -> Recipe:
        """What the run of all pictures, the last, has come to."""
        return self.recipe(method, subject.head(values, run=len(values[LAM]) - 1), values[LAM][-1])

    def recipe(self, method: str, head: Head, lam: Tensor | None = None) -> Recipe:
        usual = self.moving.usual if HEADS[METHODS[method].head].deep else None
        tensors = {**head.tensors, **(usual.tensors if usual else {})}
        return Recipe(
            self.moving.coefficients(lam),
            model=self.scene.backbone.name,
            model_fingerprint=self.scene.model_fingerprint,
            bank_fingerprint=self.scene.bank.fingerprint,
            classes=self.scene.support.classes,
            method=method,
            config={**self.config.as_dict(), "head": METHODS[method].head},
            seed=self.seed,
            head={name: tensor.half() for name, tensor in tensors.items()},
        )

    def ended(
        self,
        method: str,
        recipe: Recipe,
        *,
        ending: Ending | None = None,
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


def _start_of(subject: HeadedSubject) -> dict[str, Tensor]:
    return {name: one.start for name, one in subject.learnables.items()}
