"""Few-shot adaptation, from labelled pictures to a result. Knows nothing of files, sessions or pages.

    look      the pictures, once for each view, as far as the frozen part of the tower goes
    preview   a head on zero-shot features, at once
    learn     coefficients and head together, for all pictures and beside it without each part of them
    check     who was right on what was held out: the verdict

`auto` does all of that and keeps zero-shot where nothing beats it; any other method does what it is told.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.few_shot import FewShotConfig, few_shot
from atlas_engine.adapt.headed import HeadedSubject
from atlas_engine.adapt.loop import Ending
from atlas_engine.adapt.subject import LAM
from atlas_engine.adapt.validate import ZERO_SHOT, decide, estimates_of, held_out, labellings
from atlas_engine.adapt.watch import Stop
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.stages import late_part
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.kernel import Composer
from atlas_engine.data.augment import Augment
from atlas_engine.data.support import Support
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import Evidence, Head
from atlas_engine.heads.registry import HEADS
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Estimate, Outcome, Step, Verdict

__all__ = ["AUTO", "METHODS", "Method", "Scene", "adapt_few_shot", "find_method"]

AUTO = "auto"
CHUNK = 64
LOOKING = 0.2  # share of a run's work that goes into looking, about


class Method(NamedTuple):
    """A way to adapt: which head, and whether coefficients are learned with it."""

    head: str
    learns: bool
    layout: Layout | None = None


METHODS = MappingProxyType(
    {
        ZERO_SHOT: Method("none", learns=False),
        "tip": Method("tip", learns=False),
        "tip-f": Method("tip-f", learns=False),
        "lpp": Method("lpp", learns=False),
        "linear-probe": Method("linear-probe", learns=False),
        "text-probe": Method("text-probe", learns=False),
        "atlas-iso": Method("none", learns=True, layout=Layout("isotropic")),
        "atlas": Method("none", learns=True),
        "atlas+tip": Method("tip", learns=True),
        "atlas+lpp": Method("lpp", learns=True),
        "atlas+text-probe": Method("text-probe", learns=True),
    }
)
PREVIEW, WANTED = "text-probe", "atlas+text-probe"
"""What `auto` shows first, and what it keeps where it helps."""


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
        self.began = time.monotonic()
        self.history: list[Step] = []
        self.estimates: tuple[Estimate, ...] = ()
        visual = scene.backbone.visual
        late = late_part(visual, share=config.share) if config.share < 1 else None
        self.tower = visual if late is None else late.tower
        self.early: Callable[[Tensor], Tensor] | None = None if late is None else late.early
        self.labels = torch.tensor(scene.support.labels, device=scene.backbone.device)

    def run(self) -> Generator[Step, None, AdaptResult]:
        views = yield from self.look()
        evidence = Evidence(
            self.features(views[0]), self.labels, self.scene.text, logit_scale=self.scene.backbone.logit_scale
        )
        if not self.method.learns:
            return self.ended(self.name, HEADS[self.method.head].alone(evidence))
        checked = self.name == AUTO
        fold = held_out(evidence, folds=self.config.folds, seed=self.seed)
        answers = {} if not checked else (yield from self.preview(evidence, fold))
        labels = labellings(self.labels, fold) if checked else self.labels[None]
        subject, ending = yield from self.learn(evidence, views[1:], labels)
        head = subject.head(ending.values, run=len(labels) - 1)
        if not checked:
            return self.ended(self.name, head, lam=ending.values[LAM][-1], ending=ending)
        answers[WANTED] = self.answers(subject, ending, views[0], fold)
        self.estimates = estimates_of(answers, self.labels, fold)
        verdict = decide(answers, self.labels, fold)
        if verdict.kept == WANTED:
            return self.ended(WANTED, head, lam=ending.values[LAM][-1], ending=ending, verdict=verdict)
        frozen = HEADS[METHODS[verdict.kept].head].alone(evidence)
        return self.ended(verdict.kept, frozen, ending=ending, verdict=verdict)

    # ---- phases

    def look(self) -> Generator[Step, None, Tensor]:
        """(1 + V, N, …): the pictures as they are, then V random views of each, as far as the cut."""
        shape = self.scene.backbone.preprocessing
        pixels = self.scene.support.squares(
            shape.size, resize=shape.resize, interpolation=shape.interpolation
        )
        draw = runtime.generator(self.seed)
        needed = -(-self.config.steps * self.config.batch // len(pixels)) if self.method.learns else 0
        count = min(self.config.views, needed)
        kept = [self.activations(pixels.float() / 255)]
        for index in range(count):
            yield self.step("look", index, count, share=LOOKING * index / count)
            kept.append(self.activations(Augment(jitter=0.0)(pixels, draw)))
        return torch.stack(kept)

    def preview(self, evidence: Evidence, fold: Tensor) -> Generator[Step, None, dict[str, Tensor]]:
        """Held-out logits of zero-shot and of the head alone."""
        make = HEADS[PREVIEW].alone
        answers = {ZERO_SHOT: HEADS["none"].alone(evidence).logits(evidence.features)}
        answers[PREVIEW] = answers[ZERO_SHOT].clone()
        for part, labels in enumerate(labellings(self.labels, fold)[:-1]):
            rows = fold == part
            answers[PREVIEW][rows] = make(evidence.labelled(labels)).logits(evidence.features[rows])
        self.estimates = estimates_of(answers, self.labels, fold)
        recipe = self.recipe(PREVIEW, make(evidence))
        yield replace(self.step("preview", 0, 1, share=LOOKING), preview=recipe)
        return answers

    def learn(
        self, evidence: Evidence, views: Tensor, labels: Tensor
    ) -> Generator[Step, None, tuple[HeadedSubject, Ending]]:
        """Coefficients and head, for every labelling (R N) side by side."""
        start = HEADS[self.method.head].start
        heads = [start(evidence.labelled(row)) for row in labels]
        composer = self.composer()
        subject = HeadedSubject(
            ComposedEncoder(self.tower, composer),
            heads,
            start=composer.initial().expand(len(labels), *composer.shape).clone(),
        )
        seeds = [self.seed + run for run in range(len(labels))]
        steps = few_shot(subject, views, labels, config=self.config, seeds=seeds, stop=self.stop)
        while True:
            try:
                step = next(steps)
            except StopIteration as end:
                return subject, end.value
            share = LOOKING + (1 - LOOKING) * (step.index + 1) / step.of
            told = replace(step, seconds=self.seconds(), share=share, estimates=self.estimates)
            self.history.append(told.record())
            yield told

    @torch.no_grad()
    def answers(self, subject: HeadedSubject, ending: Ending, clean: Tensor, fold: Tensor) -> Tensor:
        """(N C): each image by the run that was held back from it, or by the run of all where none was."""
        forward = subject.at(ending.values)
        runs = ending.values[LAM].shape[0]
        logits = self.scene.text.new_zeros(len(fold), len(self.scene.text))
        for run in range(runs):
            rows = fold == (run if run < runs - 1 else -1)
            if bool(rows.any()):
                logits[rows] = torch.cat(
                    [forward.logits_fn(run)(part) for part in torch.split(clean[rows], CHUNK)]
                )
        return logits

    # ---- what they are made of

    def composer(self) -> Composer:
        bank, base = self.scene.bank, dict(self.scene.backbone.visual.named_parameters())
        if self.early is None:
            return Composer(base, bank, self.layout)
        names = [name for name, _ in self.tower.named_parameters()]
        return Composer({name: base[name] for name in names}, bank.over(names), self.layout)

    @torch.no_grad()
    def activations(self, images: Tensor) -> Tensor:
        """Images (N 3 S S) in 0 … 1 as far as the cut, or as the tower takes them where there is none."""
        parts = [self.scene.backbone.as_input(part) for part in torch.split(images, CHUNK)]
        return torch.cat(parts if self.early is None else [self.early(part) for part in parts])

    @torch.no_grad()
    def features(self, activations: Tensor) -> Tensor:
        parts = [self.tower(part).float() for part in torch.split(activations, CHUNK)]
        return F.normalize(torch.cat(parts), dim=-1)

    def seconds(self) -> float:
        return time.monotonic() - self.began

    def step(self, phase: str, index: int, of: int, *, share: float) -> Step:
        """A step that learned nothing, but tells how far the run is."""
        return Step(
            index=index,
            of=of,
            loss=float("nan"),
            losses=(),
            lr=0.0,
            grad_norm=0.0,
            scores=None,
            seconds=self.seconds(),
            phase=phase,
            share=share,
            estimates=self.estimates,
        )

    def recipe(self, method: str, head: Head, lam: Tensor | None = None) -> Recipe:
        bank = self.scene.bank
        if lam is None:
            coefficients = Coefficients.zeros(bank.tasks, bank.blocks)
        else:
            learned = self.composer().blocks if self.early is not None else bank.blocks
            coefficients = Coefficients(lam.cpu(), self.layout, bank.tasks, learned)
            if self.early is not None:
                coefficients = coefficients.widened(bank.blocks)
        return Recipe(
            coefficients,
            model=self.scene.backbone.name,
            model_fingerprint=self.scene.model_fingerprint,
            bank_fingerprint=bank.fingerprint,
            classes=self.scene.support.classes,
            method=method,
            config={**self.config.as_dict(), "head": METHODS[method].head},
            seed=self.seed,
            head=dict(head.tensors),
        )

    def ended(
        self,
        method: str,
        head: Head,
        *,
        lam: Tensor | None = None,
        ending: Ending | None = None,
        verdict: Verdict | None = None,
    ) -> AdaptResult:
        sentence = f"{method} was asked for; whether it helps was not measured."
        return AdaptResult(
            recipe=self.recipe(method, head, lam),
            outcome=ending.outcome if ending else Outcome.finished,
            reason=ending.reason if ending else "there was nothing to learn step by step.",
            history=tuple(self.history),
            seconds=self.seconds(),
            verdict=verdict or Verdict(method, helped=None, sentence=sentence),
            estimates=self.estimates,
        )
