"""Label-free adaptation at test time: from images and class names to a result.

    select    under a budget, choose the task vectors of the most similar data sets (`adapt.selection`)
    encode    run the images, and weak and strong views of each, through the frozen prefix of the tower
    learn     train the coefficients λ on an objective without labels, and choose the fraction to keep
    fit       fit a head: class centres anchored to the class names, or a balanced head that starts from them
    check     look for signs of collapse, which need no labels: the verdict

`auto` first checks that there are enough images and that the class names can tell them apart, and estimates
whether all classes are among the images. Then it trains λ of the norm layers for confident answers, and fits
a head. Both use every class equally often where all seem to be present, and otherwise as often as estimated.
Without labels a check can detect harm but not prove a gain, so a method falls back to zero-shot where its
answers show signs of collapse. A published method (`fresh_views`) does not: it is kept as it comes out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
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
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.guards import RunGuard, StopFlag, StopRun
from atlas_engine.adapt.methods import (
    ALL_CLASSES,
    AUTO,
    NORM_BASELINES,
    SOME_CLASSES,
    UNLABELLED_METHODS,
    ZERO_SHOT,
    find_method,
)
from atlas_engine.adapt.optimise import LoopResult, Score, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.results import NO_STEPS, build_recipe, build_result
from atlas_engine.adapt.samplers import UnlabelledSampler, Views
from atlas_engine.adapt.selection import VectorBudget, select_unlabelled
from atlas_engine.adapt.settings import (
    TestTimeConfig,
    TestTimeRunSettings,
    effective_test_time_config,
)
from atlas_engine.adapt.streamed_activations import Activations, split_activations
from atlas_engine.adapt.trainable import LAM, Trainable, TrainableCoefficients, TrainableNorms
from atlas_engine.adapt.trainable_part import IMAGES_AT_ONCE, TrainablePart
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.linearised import make_encoder
from atlas_engine.data.augment import STRONG, WEAK
from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.heads.base import text_logits
from atlas_engine.heads.probe import Probe
from atlas_engine.heads.registry import FeatureLevel, find_head
from atlas_engine.heads.unlabelled import estimate_proportions, fit_anchored_head, fit_balanced_head
from atlas_engine.objectives.registry import find_objective
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

__all__ = [
    "NormsResult",
    "TestTimeConfig",
    "adapt_norms",
    "adapt_unlabelled",
    "keep_zero_shot",
    "learn_unlabelled",
]

KEEP_FRACTIONS = (0.5, 1.0)  # of the learned λ; the one under which two views agree more is kept
ROUNDS = 3  # of estimating proportions, to decide whether all classes are present
ENCODE_SHARE = 0.3  # rough share of a run's work, for its progress
NOTHING_LEARNED = "the run ended before anything was learned"


@dataclass(frozen=True, eq=False)
class NormsResult:
    """The answers of a baseline that tunes norm layers, for the images it was adapted to."""

    logits: Float[Tensor, "N C"]  # on the CPU
    outcome: Outcome
    reason: str
    seconds: float


def adapt_unlabelled(
    context: AdaptContext,
    *,
    method: str,
    config: TestTimeConfig,
    seed: int,
    stop: StopFlag,
    vectors: VectorBudget | None = None,
) -> Generator[Step, None, AdaptResult]:
    """Yield the steps of every phase, then return the result."""
    run = _UnlabelledRun(context, method=method, config=config, seed=seed, stop=stop, vectors=vectors)
    return (yield from run.steps())


def adapt_norms(
    context: AdaptContext, *, method: str, config: TestTimeConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, NormsResult]:
    """Yield the steps of one of `NORM_BASELINES`, which trains the norm layers, then return its answers."""
    if method not in NORM_BASELINES:
        raise ConfigError(unknown_name("baseline", method, NORM_BASELINES))
    objective = method.removeprefix("ln-")
    run = _UnlabelledRun(context, method=objective, config=config, seed=seed, stop=stop)
    return (yield from run.norm_steps())


def keep_zero_shot(
    context: AdaptContext, *, because: str, config: TestTimeConfig, seed: int = 0
) -> AdaptResult:
    """A zero-shot result, with `because` as the reason in its verdict."""
    run = _UnlabelledRun(context, method=ZERO_SHOT, config=config, seed=seed, stop=None)
    return run.finish(ZERO_SHOT, verdict=_zero_shot_verdict(because))


def learn_unlabelled(
    trainable: Trainable,
    views: Views,
    *,
    objective: str,
    config: TestTimeRunSettings,
    proportions: Float[Tensor, " C"] | None = None,
    score: Score | None = None,
    strong_views: Callable[[Tensor, torch.Generator], Tensor] | None = None,
    seed: int = 0,
    stop: StopFlag | None = None,
) -> Generator[Step, None, LoopResult]:
    """Yield the loop's steps for an objective without labels, then return the loop's result.

    `proportions` are those of the classes, for objectives that need them. `strong_views(rows, generator)`
    draws new strong views at each step, in place of those in `views`.
    """
    spec = find_objective(objective)
    loss = spec.make(proportions=proportions) if spec.needs_proportions else spec.make()
    steps = optimise(
        trainable,
        loss,
        UnlabelledSampler(views, size=config.batch, trusting=spec.needs_trusted, strong_views=strong_views),
        config=config,
        seeds=(seed,),
        score=score,
        stop=stop,
    )
    return (yield from steps)


class _UnlabelledRun:
    """One run over the images of a context without labels."""

    def __init__(
        self,
        context: AdaptContext,
        *,
        method: str,
        config: TestTimeConfig,
        seed: int,
        stop: StopFlag | None,
        vectors: VectorBudget | None = None,
    ) -> None:
        self.context, self.name, self.method = context, method, find_method("test-time", method)
        self.chosen = ALL_CLASSES if method == AUTO else method  # `auto` may change it to SOME_CLASSES
        resolved = effective_test_time_config(config, self.method, images=len(context.pixels))
        self.config = replace(resolved, lr=self.lr_scale() * resolved.lr)
        self.seed, self.stop, self.vectors = seed, stop, vectors or VectorBudget()
        self.feature_level = find_head(self.method.head).feature_level
        self.part = TrainablePart(
            context.backbone,
            context.bank,
            share=self.config.share,
            layout=self.method.layout,
            multi_level=self.feature_level is not FeatureLevel.projected,
            block_kinds=self.method.block_kinds,
        )
        self.logit_scale = context.backbone.logit_scale
        self.progress = Progress()
        self.is_encoding = True  # until the loop begins
        self.guard = RunGuard(deadline_seconds=config.deadline_seconds, stop=stop, clock=time.monotonic)

    def lr_scale(self) -> float:
        """The method's factor on the learning rate, for the kind of norm layers that the image tower has."""
        scale = self.method.layer_norm_lr_scale
        layer_norms = any(isinstance(one, nn.LayerNorm) for one in self.context.backbone.visual.modules())
        return scale if layer_norms and scale is not None else self.method.lr_scale

    def steps(self) -> Generator[Step, None, AdaptResult]:
        """Run the method. A run that is stopped before λ was learned keeps zero-shot."""
        yield self.progress.phase("encode", 0, 1, share=0.0)
        try:
            return (yield from self.guarded_steps())
        except StopRun as end:
            verdict = _zero_shot_verdict(NOTHING_LEARNED)
            return self.finish(ZERO_SHOT, outcome=end.outcome, reason=end.reason, verdict=verdict)

    def guarded_steps(self) -> Generator[Step, None, AdaptResult]:
        # zero-shot features of the unaugmented images
        clean = self.clean_activations()
        if self.feature_level is FeatureLevel.multi_scale:
            self.part.fit_feature_stats(clean)
        features = self.part.features(clean)
        if self.name == ZERO_SHOT:
            return self.finish(ZERO_SHOT)
        # zero-shot is kept where nothing can be learned or, by `auto`, where learning looks unsafe
        reason = nothing_to_learn_reason(self.projected(features))
        if not reason and self.name == AUTO:
            complete = covers_all_classes(self.proportions(features, rounds=ROUNDS))
            self.chosen = ALL_CLASSES if complete else SOME_CLASSES
            reason = self.reason_to_skip(features, complete=complete)
        if reason:
            return self.finish(ZERO_SHOT, verdict=_zero_shot_verdict(reason))
        # a head alone, or λ and then a head
        if UNLABELLED_METHODS[self.chosen].objective is None:
            return self.finish_adapted(features, self.fit_head(features))
        return (yield from self.learn_and_fit(clean, features))

    def reason_to_skip(self, features: Float[Tensor, "N W"], *, complete: bool) -> str:
        """Why `auto` should keep zero-shot; empty where it may learn."""
        return too_few_images(len(features)) or uninformative_names(
            self.zero_shot_logits(features), complete=complete
        )

    def learn_and_fit(
        self, clean: Activations, before: Float[Tensor, "N W"]
    ) -> Generator[Step, None, AdaptResult]:
        """Train λ and fit a head; both are kept unless the answers show signs of collapse."""
        if self.vectors.limits(self.context.bank):
            yield from self.select(clean)
        # learn λ on weak and strong views
        views = yield from self.make_views(clean)
        encoder = make_encoder(self.part.tower, self.part.composer())
        text, scale = self.objective_head(before.shape[1])
        trainable = TrainableCoefficients(
            encoder, text, logit_scale=scale, start=encoder.composer.initial()[None]
        )
        loop = yield from self.learn(trainable, views, proportions=self.proportions(before))
        # keep the fraction of λ under which two views agree most, unless it shows signs of collapse
        lam, reason = self.best_fraction(encoder, loop.values[LAM][0], views)
        if any(loop.collapsed):
            reason = loop.reason.rstrip(".")
        if not loop.steps:
            reason = NOTHING_LEARNED
        if reason:
            return self.finish(ZERO_SHOT, loop=loop, verdict=_zero_shot_verdict(reason))
        # fit the head on the adapted features
        features = self.part.features(clean, tower=encoder.at(lam).features)
        return self.finish_adapted(before, self.fit_head(features), features=features, lam=lam, loop=loop)

    def norm_steps(self) -> Generator[Step, None, NormsResult]:
        """Run a baseline as published, with one of our checks: that there is something to learn from."""
        clean = self.part.clean_activations(self.context.pixels, stream=self.method.fresh_views)
        features = self.part.features(clean)
        reason = nothing_to_learn_reason(features)
        if reason:
            return self.zero_shot_norms(features, Outcome.finished, f"zero-shot was kept, because {reason}.")
        try:
            views = yield from self.make_views(clean)
        except StopRun as end:
            return self.zero_shot_norms(features, end.outcome, end.reason)
        text, scale = self.objective_head(self.context.text.shape[1])
        loop = yield from self.learn(TrainableNorms(self.part.tower, text, logit_scale=scale), views)
        # answers by the class names, whatever head the objective was trained with
        tower = TrainableNorms(self.part.tower, self.context.text, logit_scale=self.logit_scale)
        values = {name: value[0] for name, value in loop.values.items()}
        with torch.no_grad():
            parts = [tower.logits(values, some) for some in split_activations(clean, IMAGES_AT_ONCE)]
        return NormsResult(torch.cat(parts).cpu(), loop.outcome, loop.reason, self.progress.seconds())

    def zero_shot_norms(self, features: Tensor, outcome: Outcome, reason: str) -> NormsResult:
        return NormsResult(self.zero_shot_logits(features).cpu(), outcome, reason, self.progress.seconds())

    # ---- phases

    def select(self, clean: Activations) -> Generator[Step, None, None]:
        """Choose the task vectors that the budget allows."""
        yield self.progress.phase("select", 0, 1, share=0.0)
        assert self.vectors.budget is not None
        self.part.use(select_unlabelled(self.part, clean, self.context.text, budget=self.vectors.budget))

    def make_views(self, clean: Activations) -> Generator[Step, None, Views]:
        """Activations of the images and of V weak and V strong views of each, behind the frozen prefix.

        A method with fresh views makes none here: the image is its own weak view.
        """
        if self.method.fresh_views:
            return Views(clean, None, None)
        random, count = runtime.generator(self.seed), self.config.views
        weak, strong = [], []
        for index in range(count):
            yield self.progress.phase("encode", index, count, share=ENCODE_SHARE * index / count)
            weak.append(self.activations(lambda pixels: WEAK(pixels, random)))
            strong.append(self.activations(lambda pixels: STRONG(pixels, random)))
        return Views(clean, torch.stack(weak), torch.stack(strong))

    def clean_activations(self) -> Activations:
        """Activations (N …) of the images as they are; streamed by a method that draws views at each step."""
        return self.part.clean_activations(
            self.context.pixels, stream=self.method.fresh_views, before_each=self.check_before_training
        )

    def check_before_training(self) -> None:
        """Raise where the run was stopped or is late, until there is something learned to keep."""
        if self.is_encoding:
            self.guard.check()

    def activations(self, view: Callable[[Tensor], Tensor]) -> Tensor:
        """Activations (N …) of a view of every image behind the frozen prefix, some images at a time."""
        parts = []
        for pixels in torch.split(self.context.pixels, IMAGES_AT_ONCE):
            self.guard.check()
            parts.append(self.part.activations(view(pixels)))
        return torch.cat(parts)

    def learn(
        self, trainable: Trainable, views: Views, *, proportions: Tensor | None = None
    ) -> Generator[Step, None, LoopResult]:
        """Yield the loop's steps, with the time that is left until the deadline."""
        objective, limit = UNLABELLED_METHODS[self.chosen].objective, self.config.deadline_seconds
        assert objective is not None
        self.is_encoding = False
        left = None if limit is None else max(0.0, limit - self.guard.seconds())
        steps = learn_unlabelled(
            trainable,
            views,
            objective=objective,
            config=replace(self.config, deadline_seconds=left),
            proportions=proportions,
            strong_views=self.draw_strong_views if self.method.fresh_views else None,
            seed=self.seed,
            stop=self.stop,
        )
        encoded = 0.0 if self.method.fresh_views else ENCODE_SHARE
        return (yield from self.progress.track(steps, since=encoded))

    def draw_strong_views(self, rows: Tensor, generator: torch.Generator) -> Tensor:
        """Activations (B …) of a new strong view of the images in these rows, behind the frozen prefix."""
        return self.part.activations(STRONG(self.context.pixels[rows], generator))

    def best_fraction(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> tuple[Tensor, str]:
        """λ times the fraction under which two views of an image agree most, and its signs of collapse.

        A published method keeps all of λ, and is not checked.
        """
        if self.method.fresh_views:
            return lam, ""
        before = self.answer_stats(encoder, torch.zeros_like(lam), views)
        tried = [(keep * lam, self.answer_stats(encoder, keep * lam, views)) for keep in KEEP_FRACTIONS]
        best, after = max(tried, key=lambda pair: pair[1].agreement)
        return best, collapse_reason(before, after)

    @torch.no_grad()
    def answer_stats(self, encoder: ComposedEncoder, lam: Tensor, views: Views) -> AnswerStats:
        composition = encoder.at(lam)

        def logits(activations: Activations) -> Tensor:
            parts = split_activations(activations, IMAGES_AT_ONCE)
            return self.zero_shot_logits(torch.cat([composition.features(some) for some in parts]))

        assert views.weak is not None
        assert views.strong is not None
        return answer_stats(logits(views.clean), logits(views.weak[0]), logits(views.strong[0]))

    # ---- heads; W is the width of features, which hold the projected ones first

    def objective_head(self, width: int) -> tuple[Float[Tensor, "C W"], float]:
        """The head and logit scale of the objective: zero-shot's, or the identity for one on features."""
        objective = self.method.objective
        if objective is not None and find_objective(objective).on_features:
            return torch.eye(width, device=self.context.text.device), 1.0
        return self.part.zero_shot_head(self.context.text, width)

    def projected(self, features: Float[Tensor, "N W"]) -> Float[Tensor, "N D"]:
        """The projected part of features, of length 1."""
        return F.normalize(features[:, : self.context.text.shape[1]], dim=-1)

    def zero_shot_logits(self, features: Float[Tensor, "N W"]) -> Float[Tensor, "N C"]:
        return text_logits(self.projected(features), self.context.text, logit_scale=self.logit_scale)

    def class_centres(self, features: Float[Tensor, "N W"]) -> Probe:
        return fit_anchored_head(self.projected(features), self.context.text, logit_scale=self.logit_scale)

    def proportions(self, features: Float[Tensor, "N W"], *, rounds: int = 1) -> Float[Tensor, " C"]:
        """The estimated proportion of each class among the images, from the class centres."""
        logits = self.class_centres(features).logits(self.projected(features))
        return estimate_proportions(logits, rounds=rounds)

    def fit_head(self, features: Float[Tensor, "N W"]) -> Probe | None:
        """The method's head for these images, if it has one."""
        kind = UNLABELLED_METHODS[self.chosen].head
        if kind == "none":
            return None
        if kind == "anchored":
            return self.class_centres(features)
        return self.balanced_head(features, in_proportion=kind != "balanced")

    def balanced_head(self, features: Float[Tensor, "N W"], *, in_proportion: bool) -> Probe:
        """A head of confident answers that uses every class equally often, or in estimated proportions."""
        width = features.shape[1]
        _, scale = self.part.zero_shot_head(self.context.text, width)
        start = self.class_centres(features).widened(width, factor=scale / self.logit_scale)
        proportions = self.proportions(features) if in_proportion else None
        return fit_balanced_head(features, start, proportions=proportions)

    # ---- recipe and result

    def finish_adapted(
        self,
        before: Float[Tensor, "N W"],
        head: Probe | None,
        *,
        features: Float[Tensor, "N W"] | None = None,
        lam: Tensor | None = None,
        loop: LoopResult | None = None,
    ) -> AdaptResult:
        """The adapted result, or zero-shot where the adapted answers use too few classes.

        A published method is not checked.
        `before` are the features at λ = 0, and `features` those at `lam`, where λ was trained.
        """
        adapted = before if features is None else features
        logits = self.zero_shot_logits(adapted) if head is None else head.logits(adapted)
        reason = "" if self.method.fresh_views else too_few_classes(logits)
        if reason:
            return self.finish(ZERO_SHOT, loop=loop, verdict=_zero_shot_verdict(reason))
        changed = int((logits.argmax(dim=1) != self.zero_shot_logits(before).argmax(dim=1)).sum())
        verdict = _adapted_verdict(self.chosen, changed, len(logits)) if self.name == AUTO else None
        return self.finish(self.chosen, head, lam=lam, loop=loop, verdict=verdict)

    def finish(
        self,
        method: str,
        head: Probe | None = None,
        *,
        lam: Tensor | None = None,
        loop: LoopResult | None = None,
        outcome: Outcome = Outcome.finished,
        reason: str = NO_STEPS,
        verdict: Verdict | None = None,
    ) -> AdaptResult:
        unmeasured = f"{method} was asked for; without labels nobody can measure whether it helps."
        verdict = verdict or Verdict(method, helped=None, sentence=unmeasured)
        recipe = self.recipe(method, head, lam)
        return build_result(recipe, verdict, self.progress, loop=loop, outcome=outcome, reason=reason)

    def recipe(self, method: str, head: Probe | None, lam: Tensor | None) -> Recipe:
        kind = UNLABELLED_METHODS[method].head
        stats = self.part.feature_stats if find_head(kind).feature_level is FeatureLevel.multi_scale else None
        tensors = {} if head is None else {**head.tensors, **(stats.tensors if stats else {})}
        return build_recipe(
            self.context,
            self.part.coefficients(lam),
            method=method,
            head=kind,
            # a bias can be much larger than the differences it decides, so it is not rounded to float16
            head_tensors={
                name: tensor if name == "bias" else tensor.half() for name, tensor in tensors.items()
            },
            config={**self.config.as_dict(), **self.vectors.facts(self.context.bank)},
            seed=self.seed,
        )


def _zero_shot_verdict(reason: str) -> Verdict:
    return Verdict(ZERO_SHOT, helped=False, sentence=f"Zero-shot was kept, because {reason}.")


def _adapted_verdict(method: str, changed: int, of: int) -> Verdict:
    """The verdict of `auto` on an adapted result that passed its checks."""
    return Verdict(
        method,
        helped=None,
        sentence=f"Adapted to these pictures: {changed} of {of} answers changed. Without labels nobody can "
        "measure whether that helps.",
    )
