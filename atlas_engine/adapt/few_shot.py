"""Few-shot adaptation: from a few labelled images to a result.

    select    under a budget, choose the task vectors to use (`adapt.selection`)
    preview   fit a head on zero-shot features of the images and of one random view of each
    encode    run more random views through the frozen prefix of the tower, and keep the activations
    learn     train the coefficients λ on these activations: one training per fold without that fold, and one
              on all images, side by side, or some after the others where memory is short
    fit       fit the head on the features at the kept fraction of λ
    verdict   choose the one of zero-shot, head and task vectors that is right on most held-out images; with
              one image a class, the last of them whose answers hold on new views of the images; held-out
              images also give a temperature, a threshold for "none of these", and advice on more images

`auto` runs all phases, and keeps zero-shot where nothing beats it. Any other method skips preview and
verdict: its result is kept whether it helps or not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.advice import advise_from_held_out
from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.memory_plan import (
    RunPlan,
    kept_image_nbytes,
    measure_activations,
    memory_to_use,
    plan_run,
)
from atlas_engine.adapt.methods import AUTO, FEW_SHOT_METHODS, ZERO_SHOT, find_method
from atlas_engine.adapt.optimise import LoopResult, Sampler, Score, join_loops, optimise
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.results import build_recipe, build_result
from atlas_engine.adapt.samplers import FreshViewSampler, LabelledSampler
from atlas_engine.adapt.selection import SelectionConfig, select_for_support
from atlas_engine.adapt.settings import (
    FewShotConfig,
    FewShotRunSettings,
    batches_per_epoch,
    effective_few_shot_config,
)
from atlas_engine.adapt.slopes import Slopes
from atlas_engine.adapt.streamed_activations import Activations, split_activations, take_rows
from atlas_engine.adapt.trainable import LAM, Forward, TrainableWithHeads
from atlas_engine.adapt.trainable_part import IMAGES_AT_ONCE, TrainablePart
from atlas_engine.adapt.verdict import (
    PROTOTYPES,
    calibrate_held_out,
    decide_verdict,
    estimate_accuracies,
    held_out_folds,
    labels_per_fold,
    out_of_fold_logits,
    view_agreement,
)
from atlas_engine.bank.tiered import TieredBank
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.linearised import make_encoder
from atlas_engine.config import setting
from atlas_engine.data.augment import Augment, ResizedCrop
from atlas_engine.heads.base import UNUSED, Head, LabelledFeatures, ZeroShot, class_prototypes
from atlas_engine.heads.registry import HEADS, FeatureLevel
from atlas_engine.objectives.base import LogitsFn
from atlas_engine.objectives.supervised import CrossEntropy
from atlas_engine.recipe import CLASS_EMBEDDINGS, IMAGES, Json, Recipe
from atlas_engine.result import AdaptResult, Advice, Outcome, Step, Verdict

__all__ = ["FewShotConfig", "FewShotResources", "FewShotRun", "adapt_few_shot", "effective_few_shot_config"]

PREVIEW, LEARNED = "text-probe", "atlas+text-probe"
"""The methods of `auto`'s preview and of its training; held-out images choose between them and zero-shot."""

AGREEMENT_VIEWS = 8  # of each image, to compare models by where nothing can be held out
NEW_VIEWS = 7919  # what is added to the seed for views that nothing was trained on
PREVIEW_SHARE, ENCODE_SHARE, SLOPE_SHARE = 0.02, 0.13, 0.15  # rough shares of a run's work, for its progress


@dataclass(frozen=True, kw_only=True)
class FewShotResources(SelectionConfig):
    """What a run may use: task vectors and memory."""

    memory_limit: float | None = setting(
        None,
        help="most memory for a run in MiB, with model and bank; where it is short, folds are trained one "
        "after another. none is what is free on a GPU, and no limit elsewhere",
        low=0.0,
    )


def adapt_few_shot(
    context: AdaptContext,
    *,
    method: str,
    config: FewShotConfig,
    layout: Layout | None,
    seed: int,
    stop: StopFlag,
    resources: FewShotResources | None = None,
) -> Generator[Step, None, AdaptResult]:
    """Yield the steps of every phase, then return the result. `layout` replaces the method's own."""
    run = FewShotRun(
        context,
        method=method,
        config=config,
        layout=layout,
        seed=seed,
        stop=stop,
        resources=resources or FewShotResources(),
    )
    return (yield from run.steps())


class FewShotRun:
    """One run. R is the number of trainings side by side: one per held-out fold, then one on all images."""

    def __init__(
        self,
        context: AdaptContext,
        *,
        method: str,
        config: FewShotConfig,
        layout: Layout | None,
        seed: int,
        stop: StopFlag,
        resources: FewShotResources,
    ) -> None:
        self.context, self.name, self.method = context, method, find_method("few-shot", method)
        self.config = effective_few_shot_config(config, self.method, images=len(context.pixels))
        self.seed, self.stop, self.resources = seed, stop, resources
        self.head = HEADS[self.method.head]
        self.part = TrainablePart(
            context.backbone,
            context.bank,
            share=self.config.share,
            layout=layout or self.method.layout,
            multi_level=self.head.feature_level is not FeatureLevel.projected,
        )
        self.random = runtime.generator(seed)
        self.progress = Progress()
        self.start = PROTOTYPES if context.prototypes else ZERO_SHOT

    def steps(self) -> Generator[Step, None, AdaptResult]:
        """Run the method: a head alone, `auto` with its checks, or another method without them."""
        # the unaugmented images through the frozen prefix; streamed where all views are
        clean = self.clean_activations()
        if self.head.feature_level is FeatureLevel.multi_scale and self.part.feature_stats is None:
            self.part.fit_feature_stats(clean)
        if self.method.uses_task_vectors and self.resources.limits(self.context.bank):
            yield from self.select(clean)
        # and the random views that the head is fitted on as well
        inputs: list[Activations] = [clean, *(self.random_view() for _ in range(self.head.extra_views))]
        if not self.method.uses_task_vectors:
            return self.finish(self.name, self.recipe(self.name, self.head.fit_alone(self.labelled(inputs))))
        if self.name == AUTO:
            return (yield from self.learn_and_check(inputs))
        return (yield from self.learn_unchecked(inputs))

    def learn_and_check(self, inputs: Sequence[Activations]) -> Generator[Step, None, AdaptResult]:
        """Keep the best of zero-shot, a head, and task vectors with a head, by held-out images."""
        labels = self.context.labels
        # folds: each is held out of one training, and the last training sees all images
        images = self.labelled(inputs[:1])
        folds = held_out_folds(
            images, folds=self.config.folds, seed=self.seed, every_class=self.context.prototypes
        )
        fold_labels = labels_per_fold(labels, folds)  # (R N)
        # preview: a head on zero-shot features
        heads = self.starting_heads(self.labelled(inputs), fold_labels)
        zero_shot = self.zero_shot_heads(images, fold_labels)
        logits = {
            ZERO_SHOT: out_of_fold_logits(
                folds, lambda run, rows: zero_shot[run].logits(images.features[rows])
            ),
            PREVIEW: out_of_fold_logits(folds, lambda run, rows: heads[run].logits(images.features[rows])),
        }
        recipes = {ZERO_SHOT: self.recipe(ZERO_SHOT, zero_shot[-1]), PREVIEW: self.recipe(PREVIEW, heads[-1])}
        models = {ZERO_SHOT: self.start_model(zero_shot[-1]), PREVIEW: self.start_model(heads[-1])}
        self.progress.estimates = estimate_accuracies(logits, labels, folds, start=self.start)
        yield self.progress.phase("preview", 0, 1, share=PREVIEW_SHARE, preview=recipes[PREVIEW])
        # encode and learn: λ of all trainings side by side
        views = yield from self.make_views(inputs[1:])
        trainable = self.trainable(self.training_heads(heads, images, fold_labels))
        loop = yield from self.learn(trainable, views, fold_labels)
        # fit: a head per training at its kept λ; a run that was stopped has its preview only
        if loop.outcome is Outcome.finished:
            lam = self.kept_coefficients(loop)
            heads = self.final_heads(trainable, loop, inputs, fold_labels)
            logits[LEARNED] = out_of_fold_logits(
                folds,
                lambda run, rows: heads[run].logits(
                    self.part.features(
                        take_rows(inputs[0], rows), tower=trainable.encoder.at(lam[run]).features
                    )
                ),
            )
            recipes[LEARNED] = self.recipe(LEARNED, heads[-1], lam[-1])
            tower = trainable.encoder.at(lam[-1]).features
            models[LEARNED] = lambda some: heads[-1].logits(self.part.features(some, tower=tower))
            self.progress.estimates = estimate_accuracies(logits, labels, folds, start=self.start)
        # verdict: the method that held-out images favour, or new views where nothing can be held out
        agreements = None if bool((folds != UNUSED).any()) else self.view_agreements(models, inputs[0])
        verdict = decide_verdict(logits, labels, folds, start=self.start, agreements=agreements)
        # trust: probabilities, a threshold for "none of these", and what more images would bring
        kept = replace(
            recipes.pop(verdict.kept),
            calibration=calibrate_held_out(
                logits[verdict.kept], labels, folds, method=verdict.kept, classes=self.context.classes
            ),
        )
        advice = advise_from_held_out(
            images, logits, folds, kept=verdict.kept, from_text=not self.context.prototypes, seed=self.seed
        )
        return self.finish(
            verdict.kept, kept, loop=loop, verdict=verdict, alternatives=recipes, advice=advice
        )

    def learn_unchecked(self, inputs: Sequence[Activations]) -> Generator[Step, None, AdaptResult]:
        """Train the chosen method on all images, and keep it whether it helps or not."""
        views = yield from self.make_views(inputs[1:])
        labels, images = self.context.labels[None], self.labelled(inputs)
        heads = self.starting_heads(images, labels)
        trainable = self.trainable(self.training_heads(heads, images, labels))
        if self.method.slopes:
            trainable = yield from self.start_from_slopes(trainable, inputs[0], views, labels)
        if self.method.objective is None:
            start = {name: tensor.start for name, tensor in trainable.tensors_to_learn.items()}
            return self.finish(self.name, self.recipe(self.name, trainable.head(start), start[LAM][0]))
        loop = yield from self.learn(trainable, views, labels)
        (lam,), (head,) = self.kept_coefficients(loop), self.final_heads(trainable, loop, inputs, labels)
        return self.finish(self.name, self.recipe(self.name, head, lam), loop=loop)

    # ---- phases

    def select(self, clean: Activations) -> Generator[Step, None, None]:
        """Choose the task vectors that the budget allows, by the unaugmented images."""
        yield self.progress.phase("select", 0, 1, share=0.0)
        budget = self.resources.budget
        assert budget is not None
        chosen = select_for_support(
            self.part,
            clean,
            self.context.text,
            self.context.labels,
            budget=budget,
            select=self.resources.select,
        )
        self.part.use(chosen)

    def make_views(self, first: Sequence[Activations]) -> Generator[Step, None, Tensor]:
        """Activations (V N …) of random views of each image, behind the frozen prefix.

        `first` are views that were made before. A method with fresh views makes none here.
        """
        if self.method.fresh_views:
            return torch.empty(0)
        # no more views than the training will draw of each image
        images, config = len(self.context.pixels), self.config
        needed = math.ceil(config.steps * config.batch / images) if self.method.objective else 1
        count = max(min(config.views, needed), 1)
        views = [view for view in first if isinstance(view, Tensor)]
        for index in range(len(views), count):
            yield self.progress.phase(
                "encode", index, count, share=PREVIEW_SHARE + ENCODE_SHARE * index / count
            )
            views.append(self.random_view())
        return torch.stack(views)

    def start_from_slopes(
        self, trainable: TrainableWithHeads, clean: Activations, views: Tensor, labels: Int[Tensor, "R N"]
    ) -> Generator[Step, None, TrainableWithHeads]:
        """The same heads, with λ from the slopes of the margins at λ = 0."""
        start = {name: tensor.start for name, tensor in trainable.tensors_to_learn.items()}
        heads = [trainable.head(start, run=run) for run in range(len(labels))]
        images = take_rows(clean, torch.arange(len(clean)))
        slopes = Slopes(trainable.encoder, torch.cat([images[None], views[:1]]), labels, heads)
        for done in slopes.measure():
            yield self.progress.phase("slope", 0, 1, share=PREVIEW_SHARE + ENCODE_SHARE + SLOPE_SHARE * done)
            if self.stop.is_set():
                break
        return self.trainable(heads, slopes.coefficients().to(self.context.labels.device))

    def learn(
        self, trainable: TrainableWithHeads, views: Tensor, labels: Int[Tensor, "R N"]
    ) -> Generator[Step, None, LoopResult]:
        """Train λ, and the head if it is trained jointly: one training per row of labels.

        All are trained side by side, or in groups, one after another, of as many as fit into memory. The
        groups do not change what is learned, because every training has its own seed.
        """
        at_once, micro_batch = self.fit_into_memory(trainable.encoder, views, runs=len(labels))
        config = replace(self.config, lr=self.method.lr_scale * self.config.lr, micro_batch=micro_batch)
        groups = [range(len(labels))[first : first + at_once] for first in range(0, len(labels), at_once)]
        encoded = 0.0 if self.method.fresh_views else PREVIEW_SHARE + ENCODE_SHARE
        before = encoded + SLOPE_SHARE * self.method.slopes
        began, loops = self.progress.seconds(), list[LoopResult]()
        for place, runs in enumerate(groups):
            limit = config.deadline_seconds
            left = None if limit is None else max(0.0, limit - (self.progress.seconds() - began))
            steps = self.optimise_group(
                trainable.group(runs),
                views,
                labels[runs.start : runs.stop],
                config=replace(config, deadline_seconds=left),
                seeds=[self.seed + run for run in runs],
            )
            share = (1 - before) / len(groups)
            since = before + share * place
            loops.append((yield from self.progress.track(steps, since=since, until=since + share)))
            if loops[-1].outcome in (Outcome.cancelled, Outcome.deadline):
                break
        start = {name: tensor.start for name, tensor in trainable.tensors_to_learn.items()}
        return join_loops(loops, start=start)

    def optimise_group(
        self,
        trainable: TrainableWithHeads,
        views: Tensor,
        labels: Int[Tensor, "R N"],
        *,
        config: FewShotRunSettings,
        seeds: Sequence[int],
    ) -> Generator[Step, None, LoopResult]:
        """The loop of trainings that run side by side."""
        score: Score | None = None
        sampler: Sampler
        if self.method.fresh_views:
            sampler = FreshViewSampler(
                self.context.pixels,
                labels,
                size=config.batch,
                view=ResizedCrop(),
                to_input=self.part.activations,
            )
        else:
            sampler = LabelledSampler(views, labels, config.batch)
        if self.context.validation is not None:
            # keep the epoch with the highest validation accuracy
            epoch = batches_per_epoch(config.batch, images=len(self.context.pixels))
            config, score = replace(config, keep="best", score_every=epoch), self.validation_accuracy
        return optimise(
            trainable, CrossEntropy(), sampler, config=config, seeds=seeds, score=score, stop=self.stop
        )

    def fit_into_memory(
        self, encoder: ComposedEncoder, views: Tensor, *, runs: int
    ) -> tuple[int, int | None]:
        """How many trainings fit side by side, and how many images at a time; all where no limit is known.

        Raises `ConfigError` where not even one training fits with one image at a time.
        """
        limit = memory_to_use(self.context.backbone.device, self.resources.memory_limit)
        if limit is None:
            return runs, self.config.micro_batch
        plan = self.plan(encoder, views, runs=runs, limit_nbytes=limit)
        plan.require_fit()
        micro_batch = self.config.micro_batch if plan.micro_batch == plan.batch else plan.micro_batch
        return plan.runs_at_once, micro_batch

    def plan(self, encoder: ComposedEncoder, views: Tensor, *, runs: int, limit_nbytes: int) -> RunPlan:
        """What the trainings need of memory, and how many of them fit at once."""
        context, config, images = self.context, self.config, len(self.context.pixels)
        batch = config.batch if self.method.fresh_views else min(config.batch, images)
        two = views[0, :2] if len(views) else self.part.activations(context.pixels[:2].float() / 255)
        # selected vectors are a bank of their own: beside the whole one, or alone where that is on disk
        chosen, is_on_disk = encoder.composer.bank, isinstance(context.bank, TieredBank)
        limited = self.resources.limits(context.bank)
        selected = chosen.nbytes if limited and not is_on_disk else 0
        return plan_run(
            context.bank.blocks,
            encoder.composer.blocks,
            tasks=len(chosen if limited and is_on_disk else context.bank),
            storage=context.bank.storage,
            layout=self.part.layout,
            runs=runs,
            batch=min(batch, config.micro_batch or batch),
            activations=measure_activations(self.part.tower, two),
            kept_nbytes=selected
            + kept_image_nbytes(
                images=images,
                batch=batch,
                input_nbytes=two[0].nbytes,
                kept_inputs=self.head.extra_views + (0 if self.method.fresh_views else 1 + len(views)),
                pixel_nbytes=context.pixels[0].nbytes if context.pixels.device == two.device else 0,
            ),
            limit_nbytes=limit_nbytes,
        )

    def validation_accuracy(self, forward: Forward) -> tuple[float, ...]:
        """Validation accuracy of the one training; methods with validation images have no folds."""
        task = self.context.validation
        assert task is not None
        assert task.labels is not None
        parts = [
            forward.logits_fn(0)(self.part.activations(pixels.float() / 255))
            for pixels in torch.split(task.pixels, IMAGES_AT_ONCE)
        ]
        return (float((torch.cat(parts).argmax(dim=1) == task.labels).float().mean()),)

    # ---- heads and coefficients

    def starting_heads(self, images: LabelledFeatures, labels: Int[Tensor, "R N"]) -> list[Head]:
        """A head for each row of labels, fitted or initialised; `images` may hold views after the images."""
        make = self.head.fit_alone if self.method.fitted_start else self.head.initialise
        return [make(self.relabelled(images, row)) for row in labels]

    def zero_shot_heads(self, images: LabelledFeatures, labels: Int[Tensor, "R N"]) -> list[Head]:
        """For each row of labels, the class names alone, or the prototypes of the images that it labels."""
        return [ZeroShot.fit(self.relabelled(images, row)) for row in labels]

    def relabelled(self, images: LabelledFeatures, labels: Int[Tensor, " N"]) -> LabelledFeatures:
        """The same features with other labels; prototypes are made anew, from these labels alone.

        `images` may hold views after the images.
        """
        other = images.with_labels(labels.repeat(len(images.labels) // len(labels)))
        if not self.context.prototypes or torch.equal(labels, self.context.labels):
            return other
        prototypes = class_prototypes(self.base_features, labels, len(self.context.text))
        text, _ = self.part.zero_shot_head(prototypes, images.features.shape[1])
        return replace(other, text=text)

    @cached_property
    def base_features(self) -> Float[Tensor, "N D"]:
        """Projected features of length 1 of the unaugmented images, from the base model."""
        features = self.part.features(self.clean_activations())
        return F.normalize(features[:, : self.context.text.shape[1]], dim=-1)

    def training_heads(
        self, heads: Sequence[Head], images: LabelledFeatures, labels: Int[Tensor, "R N"]
    ) -> Sequence[Head]:
        """The heads that λ is trained under: these, or zero-shot where the head is fitted after λ.

        A head that already fits the images well leaves λ hardly any loss to learn from.
        """
        return self.zero_shot_heads(images, labels) if self.head.fit_after else heads

    def trainable(self, heads: Sequence[Head], lam: Tensor | None = None) -> TrainableWithHeads:
        """λ and a head for each training; λ starts at `lam`, by default at 0."""
        composer = self.part.composer()
        start = composer.initial().expand(len(heads), *composer.shape).clone() if lam is None else lam
        return TrainableWithHeads(make_encoder(self.part.tower, composer), heads, start=start)

    def kept_coefficients(self, loop: LoopResult) -> Float[Tensor, "R ..."]:
        """The learned λ of each training times the method's `keep_fraction`."""
        return self.method.keep_fraction * loop.values[LAM]

    def final_heads(
        self,
        trainable: TrainableWithHeads,
        loop: LoopResult,
        inputs: Sequence[Activations],
        labels: Int[Tensor, "R N"],
    ) -> list[Head]:
        """The head of each training: as trained jointly, or fitted now on the features at its kept λ.

        A joint head goes the same fraction of its way from its start as λ does, because the two fit together.
        """
        if not self.head.fit_after:
            values = {
                name: torch.lerp(tensor.start, loop.values[name], self.method.keep_fraction)
                for name, tensor in trainable.tensors_to_learn.items()
            }
            return [trainable.head(values, run=run) for run in range(len(labels))]
        heads = []
        for lam, row in zip(self.kept_coefficients(loop), labels, strict=True):
            adapted = self.labelled(inputs, tower=trainable.encoder.at(lam).features)
            heads += self.starting_heads(adapted, row[None])
        return heads

    # ---- images

    def clean_activations(self) -> Activations:
        """Activations (N …) of the images as they are; streamed by a method that draws views at each step."""
        return self.part.clean_activations(self.context.pixels, stream=self.method.fresh_views)

    def random_view(self, random: torch.Generator | None = None) -> Tensor:
        """Activations (N …) of a random view of each image behind the frozen prefix."""
        return self.part.activations(Augment(jitter=0.0)(self.context.pixels, random or self.random))

    @torch.no_grad()
    def view_agreements(self, models: Mapping[str, LogitsFn], clean: Activations) -> dict[str, float]:
        """How often each model gives new random views the class that it gives the image, by method."""
        random = runtime.generator(self.seed + NEW_VIEWS)
        views = [self.random_view(random) for _ in range(AGREEMENT_VIEWS)]
        images = torch.cat(list(split_activations(clean, IMAGES_AT_ONCE)))
        return {
            name: view_agreement(model(images), [model(view) for view in views])
            for name, model in models.items()
        }

    def start_model(self, head: Head) -> LogitsFn:
        """Activations to logits under this head, by the model that the run starts from."""
        return lambda activations: head.logits(self.start_features(activations))

    def start_features(self, activations: Activations) -> Float[Tensor, "N D"]:
        """Features of the model that the run starts from."""
        return self.part.features(activations)

    def labelled(
        self, inputs: Sequence[Activations], *, tower: Callable[[Tensor], Tensor] | None = None
    ) -> LabelledFeatures:
        """Features and labels of the images, then of each of their views: V·N rows for V `inputs`."""
        features = torch.cat([self.part.features(activations, tower=tower) for activations in inputs])
        text, scale = self.part.zero_shot_head(self.context.text, features.shape[1])
        return LabelledFeatures(features, self.context.labels.repeat(len(inputs)), text, logit_scale=scale)

    # ---- recipe and result

    def recipe(self, method: str, head: Head, lam: Tensor | None = None) -> Recipe:
        """A recipe of this head and of λ, by default 0."""
        kind = FEW_SHOT_METHODS[method].head
        stats = self.part.feature_stats if HEADS[kind].feature_level is FeatureLevel.multi_scale else None
        tensors = {**head.tensors, **(stats.tensors if stats else {})}
        head_tensors = {name: tensor.half() for name, tensor in tensors.items()}
        if self.context.backbone.encode_text is None:  # the recipe's user could not make them
            head_tensors[CLASS_EMBEDDINGS] = self.context.text
        return build_recipe(
            self.context,
            self.part.coefficients(lam),
            method=method,
            head=kind,
            head_tensors=head_tensors,
            config={**self.config.as_dict(), **self.selection_facts(), IMAGES: len(self.context.pixels)},
            seed=self.seed,
        )

    def selection_facts(self) -> dict[str, Json]:
        """The budget and how it was spent, as the recipe records them; empty without one."""
        facts = self.resources.facts(self.context.bank)
        return {name: facts[name] for name in ("budget", "select") if name in facts}

    def finish(
        self,
        method: str,
        recipe: Recipe,
        *,
        loop: LoopResult | None = None,
        verdict: Verdict | None = None,
        alternatives: Mapping[str, Recipe] | None = None,
        advice: Advice | None = None,
    ) -> AdaptResult:
        """The result; without a verdict, one that says that nothing was measured."""
        unmeasured = f"{method} was asked for; whether it helps was not measured."
        verdict = verdict or Verdict(method, helped=None, sentence=unmeasured)
        return build_result(
            recipe, verdict, self.progress, loop=loop, alternatives=alternatives, advice=advice
        )
