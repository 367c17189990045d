"""Learn on from where a recipe stands, with more labelled images.

    run = engine.continue_from(recipe, more)         # images of its classes, or of new ones as well

A recipe holds what was learned and no image, so this is what is kept of the earlier images:

    λ          training starts at the recipe's coefficients
    head       the probe is fitted to the new images and drawn to the recipe's own, the more strongly the more
               images made it (`Probe.fit_further`); a class without new images keeps its row
    features   stay standardised on the earlier images

The new images are held out in turn, as in few-shot adaptation, and decide between the recipe as it was, a
head that learned on, and coefficients and head that learned on. Earlier images are not asked again, so where
you still have them, adapting anew to all images is better: `atlas eval trust` measures by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from atlas_engine.adapt.context import AdaptContext
from atlas_engine.adapt.few_shot import LEARNED, FewShotConfig, FewShotResources, FewShotRun
from atlas_engine.adapt.guards import StopFlag
from atlas_engine.adapt.methods import AUTO, FEW_SHOT_METHODS, ZERO_SHOT
from atlas_engine.adapt.optimise import LoopResult
from atlas_engine.adapt.streamed_activations import Activations
from atlas_engine.adapt.trainable import TrainableWithHeads
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.clip.feature_levels import FeatureStats
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.linearised import make_encoder
from atlas_engine.errors import RecipeError
from atlas_engine.heads.base import Head, LabelledFeatures
from atlas_engine.heads.probe import Probe
from atlas_engine.recipe import CLASS_EMBEDDINGS, IMAGES, Recipe
from atlas_engine.result import AdaptResult, Advice, Step, Verdict

__all__ = ["continue_few_shot"]

AS_IT_WAS = "the recipe as it was"
HEADS_TO_CONTINUE = ("text-probe", "none")


def continue_few_shot(
    context: AdaptContext, recipe: Recipe, *, config: FewShotConfig, seed: int, stop: StopFlag
) -> Generator[Step, None, AdaptResult]:
    """Yield the steps of every phase, then return the result.

    The context's classes are the recipe's, and then new ones. Its labels may leave classes out.
    """
    kind = str(recipe.config.get("head", "none"))
    if kind not in HEADS_TO_CONTINUE:
        raise RecipeError(
            f"this recipe's head is '{kind}', which cannot learn on. Recipes of auto, "
            f"{LEARNED}, text-probe and atlas can; with another, adapt anew to all images."
        )
    return (yield from _ContinuedRun(context, recipe, config=config, seed=seed, stop=stop).steps())


class _ContinuedRun(FewShotRun):
    """A few-shot run whose base is the recipe's model: at its λ, with its head, on its features."""

    def __init__(
        self, context: AdaptContext, recipe: Recipe, *, config: FewShotConfig, seed: int, stop: StopFlag
    ) -> None:
        method, coefficients = FEW_SHOT_METHODS[AUTO], recipe.coefficients
        super().__init__(
            context,
            method=method.name,
            config=config if _fits(recipe, context, method.share) else replace(config, share=1.0),
            layout=replace(coefficients.layout, granularity="block")
            if bool(coefficients.values.any())
            else method.layout,
            seed=seed,
            stop=stop,
            resources=FewShotResources(),
        )
        self.before, self.start = recipe, AS_IT_WAS
        own = {name: tensor for name, tensor in recipe.head.items() if name != CLASS_EMBEDDINGS}
        tensors = {name: tensor.to(context.backbone.device).float() for name, tensor in own.items()}
        feature_stats, self.head_tensors = FeatureStats.from_tensors(tensors)
        if feature_stats is not None:
            self.part.use_feature_stats(feature_stats)
        known = recipe.config.get(IMAGES)  # older recipes do not say
        self.images_before = known if isinstance(known, int) else len(context.pixels)

    @cached_property
    def lam_before(self) -> Tensor:
        """λ of the recipe over the trainable blocks, in the shape that the run learns."""
        composer = self.part.composer()
        if not bool(self.before.coefficients.values.any()):
            return composer.initial()
        narrowed = self.before.coefficients.narrowed(composer.bank.blocks)
        return narrowed.values.to(self.context.labels.device)

    @cached_property
    def encoder_before(self) -> ComposedEncoder:
        """The trainable part of the tower, to be composed at any λ."""
        return make_encoder(self.part.tower, self.part.composer())

    def head_before(self, images: LabelledFeatures) -> Probe:
        """The recipe's head; rows of new classes start at their names."""
        start = Probe.start(images, prior="text")
        if not self.head_tensors:
            return start
        rows = len(self.before.classes)
        text = images.text[:rows]
        old = Probe.from_tensors(self.head_tensors, text, logit_scale=images.logit_scale)
        return Probe(torch.cat([old.weight, start.weight[rows:]]), torch.cat([old.bias, start.bias[rows:]]))

    # ---- what a few-shot run starts from, replaced

    def start_features(self, activations: Activations) -> Float[Tensor, "N D"]:
        """Features at the recipe's λ."""
        return self.part.features(activations, tower=self.encoder_before.at(self.lam_before).features)

    def labelled(
        self, inputs: Sequence[Activations], *, tower: Callable[[Tensor], Tensor] | None = None
    ) -> LabelledFeatures:
        """Features at the recipe's λ, unless another tower is given."""
        chosen = self.encoder_before.at(self.lam_before).features if tower is None else tower
        return super().labelled(inputs, tower=chosen)

    def zero_shot_heads(self, images: LabelledFeatures, labels: Int[Tensor, "R N"]) -> list[Head]:
        """The recipe's head, for every training: it has seen none of the images."""
        return [self.head_before(images)] * len(labels)

    def training_heads(
        self,
        heads: Sequence[Head],  # noqa: ARG002 - λ is trained under the class names
        images: LabelledFeatures,
        labels: Int[Tensor, "R N"],
    ) -> Sequence[Head]:
        """The class names alone, as in few-shot adaptation."""
        return super().zero_shot_heads(images, labels)

    def starting_heads(self, images: LabelledFeatures, labels: Int[Tensor, "R N"]) -> list[Head]:
        """For each row of labels, the recipe's head fitted further."""
        before = self.head_before(images)
        return [
            before.fit_further(self.relabelled(images, row), images_before=self.images_before)
            for row in labels
        ]

    def trainable(self, heads: Sequence[Head], lam: Tensor | None = None) -> TrainableWithHeads:
        """λ and a head for each training; λ starts where keeping its fraction gives the recipe's."""
        if lam is None:
            start = self.lam_before / self.method.keep_fraction
            lam = start.expand(len(heads), *start.shape).clone()
        return super().trainable(heads, lam)

    def recipe(self, method: str, head: Head, lam: Tensor | None = None) -> Recipe:
        """The recipe of a method; zero-shot stands for the recipe as it was, over all classes."""
        made = super().recipe("text-probe" if method == ZERO_SHOT else method, head, self._lam_or_before(lam))
        return replace(made, config={**made.config, IMAGES: self.images_before + len(self.context.pixels)})

    def _lam_or_before(self, lam: Tensor | None) -> Tensor:
        return self.lam_before if lam is None else lam

    def finish(
        self,
        method: str,
        recipe: Recipe,
        *,
        loop: LoopResult | None = None,
        verdict: Verdict | None = None,
        alternatives: Mapping[str, Recipe] | None = None,
        advice: Advice | None = None,  # noqa: ARG002 - the earlier images are gone, so there is no curve
    ) -> AdaptResult:
        """The result; where nothing helped, the recipe as it was."""
        if verdict is not None and verdict.kept == ZERO_SHOT:
            grown = len(self.before.classes) < len(self.context.classes)
            recipe = recipe if grown else self.before
            verdict = replace(verdict, kept=self.before.method)
        self.progress.estimates = tuple(
            replace(one, method=AS_IT_WAS) if one.method == ZERO_SHOT else one
            for one in self.progress.estimates
        )
        return super().finish(method, recipe, loop=loop, verdict=verdict, alternatives=alternatives)


def _fits(recipe: Recipe, context: AdaptContext, share: float) -> bool:
    """Whether all blocks that the recipe moves lie in this share of the tower's weights, from its end."""
    part = TrainablePart(context.backbone, context.bank, share=share, multi_level=True)
    trainable = set(part.trainable_bank().blocks.names)
    moves = recipe.coefficients.table.transpose(0, 1).flatten(1).any(dim=1).tolist()
    names = recipe.coefficients.blocks.names
    return all(name in trainable for name, moved in zip(names, moves, strict=True) if moved)
