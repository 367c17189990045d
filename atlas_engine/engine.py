"""The session: a model on a device with its bank of task vectors, and everything that can be done with it.

    with atlas.open() as engine:
        engine.predict(["a.jpg", "b.jpg"], ["otter", "seal"]).top(3)
        result = engine.few_shot(Support.from_folder("my_photos")).result()
        engine.compare(["c.jpg"], result.recipe)

Opening a session is slow and using it is fast, so open one and keep it. To adapt, the session puts the model,
the bank and the images into an `AdaptContext` and calls `adapt`; it knows nothing of how a method works.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.arithmetic.addition import add, find_named_tasks, find_task_vectors
from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.adapt.arithmetic.negation import CONTROL, TARGET, negate
from atlas_engine.adapt.context import AdaptContext, TaskData
from atlas_engine.adapt.continued import continue_few_shot
from atlas_engine.adapt.effects import VectorEffect, measure_effects
from atlas_engine.adapt.few_shot import FewShotConfig, FewShotResources, adapt_few_shot
from atlas_engine.adapt.image_check import ImageCheck, check_images
from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.open_bank import open_bank
from atlas_engine.adapt.progress import Progress
from atlas_engine.adapt.selection import VectorBudget
from atlas_engine.adapt.stream import Stream, StreamConfig
from atlas_engine.adapt.trainable_part import multi_level_features
from atlas_engine.adapt.unlabelled import NormsResult, TestTimeConfig, adapt_norms, adapt_unlabelled
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import find_bank
from atlas_engine.bank.vector import fingerprint
from atlas_engine.cache import Cache, cache_key
from atlas_engine.calibration import KEPT_SHARE, calibrate
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.templates import Templates, find_templates
from atlas_engine.clip.text import check_class_names, text_head
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.linearised import TangentTower
from atlas_engine.compose.used_vectors import build_tower
from atlas_engine.config import cache_folder
from atlas_engine.data.decode import ImageSource
from atlas_engine.data.image import Image, StopQuestion
from atlas_engine.data.image_files import ImageFiles, image_names, keep_or_stream
from atlas_engine.data.preprocess import allocate_pixels, stack_pixels, to_batch
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, ModelError, RecipeError, SupportError, unknown_name
from atlas_engine.exporting.classifier import Classifier
from atlas_engine.exporting.formats import Exported, check_export, write_export
from atlas_engine.heads.base import class_prototypes
from atlas_engine.predictions import Comparison, Predictions, predictions_from_logits
from atlas_engine.recipe import Recipe, RecipeNetwork, as_predictor
from atlas_engine.result import AdaptResult, Run, Step

__all__ = ["Atlas", "open", "predict"]

BATCH = 32
CACHED_HEADS = 16  # sets of class names whose embeddings are kept in memory
HASHED_NUMBERS = 64  # of each tensor, at least, where it has as many (`Atlas.weights_id`)

FindBank = Callable[[], Path | None]
"""Looks for a bank file on this machine."""


def open(
    model: str = "bundled",
    *,
    bank: Path | str | None = None,
    device: str | None = None,
    cache: Cache | bool = True,
    class_embeddings: Mapping[str, Tensor] | None = None,
    bank_memory: float | None = None,
    share_bank: bool = False,
) -> Atlas:
    """A session with the model called `model`; `cache=False` keeps nothing on disk.

    `bank` is a bank file for that model. By default it is the model's own bank, where this machine has one:
    the bundled model's bank is installed with it, and `prepare` builds banks from public checkpoints. A bank
    is read when it is first needed. `class_embeddings` are vectors (D) by class name, to be used instead of
    the text tower's.

    A bank of more than `bank_memory` MiB stays on disk: a run with a budget reads the vectors that it
    chooses, and up to so much is kept of what was read (`bank.tiered`). By default it is ATLAS_BANK_MEMORY,
    or 1024. With `share_bank`, processes of one machine that open one bank on a CPU have it in memory once;
    its file must then be replaced, never written into.
    """
    runtime.keep_memory()
    store = cache if isinstance(cache, Cache) else Cache(cache_folder()) if cache else None
    backbone = open_backbone(model, device=runtime.pick_device(device))

    def find() -> Path | None:
        return find_bank(dict(backbone.visual.named_parameters()))

    return Atlas(
        backbone,
        bank_path=Path(bank) if bank else find,
        cache=store,
        class_embeddings=class_embeddings,
        bank_memory=bank_memory,
        share_bank=share_bank,
    )


def predict(images: Sequence[ImageSource], classes: Sequence[str], *, model: str = "bundled") -> Predictions:
    """Zero-shot predictions, from a session that is opened and closed for this one call."""
    with open(model) as engine:
        return engine.predict(images, classes)


class Atlas:
    """A session: a model on a device, its bank, and a cache of features and class embeddings."""

    def __init__(
        self,
        backbone: Backbone,
        *,
        bank_path: Path | FindBank | None = None,
        cache: Cache | None = None,
        class_embeddings: Mapping[str, Tensor] | None = None,
        bank_memory: float | None = None,
        share_bank: bool = False,
    ) -> None:
        """`bank_path` is the bank file, or a function that finds it when a bank is first needed.

        `bank_memory` and `share_bank` are as `open` has them.
        `class_embeddings` are vectors (D) by class name, to be used instead of the text tower's.
        """
        self.backbone = backbone
        self._class_embeddings = _check_embeddings(class_embeddings or {}, backbone)
        self.cache = cache
        self._given_bank_path, self._bank_memory = bank_path, bank_memory
        self._share_bank = share_bank
        self._cached_head = functools.lru_cache(maxsize=CACHED_HEADS)(self._compute_head)

    def close(self) -> None:
        """Close the cache and the bank's file. The model's memory is freed with this object."""
        if "bank" in self.__dict__:  # it was opened
            self.bank.close()
        if self.cache is not None:
            self.cache.close()

    def __enter__(self) -> Atlas:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Atlas({self.backbone!r})"

    # ---- zero-shot

    def predict(
        self, images: Sequence[ImageSource], classes: Sequence[str], *, templates: Templates | None = None
    ) -> Predictions:
        """Zero-shot probabilities of each image over `classes`.

        logits = logit_scale · normalise(features) @ headᵀ        # (N D) @ (D C) -> (N C)
        """
        names = check_class_names(classes, at_least=2)
        read = self.read_images(images)
        return self._predict(read, names, self.head(names, templates=templates))

    def _predict(
        self, images: Sequence[Image], classes: tuple[str, ...], head: Float[Tensor, "C D"]
    ) -> Predictions:
        logits = self.backbone.logit_scale * self.features(images) @ head.T
        return predictions_from_logits(image_names(images), classes, logits)

    def read_images(
        self, images: Sequence[ImageSource], *, stop: StopQuestion | None = None
    ) -> Sequence[Image]:
        """Decoded and checked images, from paths, bytes, PIL images, arrays or images read before.

        Of many images none is kept: each is read when it is asked for (`data.image_files`). A StoppedError
        ends the reading once `stop` is true.
        """
        if isinstance(images, (str, bytes)):
            raise SupportError("images must be a list, but got one image. Pass [image].")
        if not len(images):
            raise SupportError("got no images. Give at least one.")
        return keep_or_stream(images, stop=stop)

    def pixels(self, images: Sequence[Image]) -> UInt8[Tensor, "N 3 S S"]:
        """The images at the model's input size; (0 3 S S) for no images.

        Half a gigabyte of them or more lie in a temporary file (`data.preprocess.allocate_pixels`).
        """
        spec = self.backbone.preprocessing
        return stack_pixels(images, spec.size, resize=spec.resize, interpolation=spec.interpolation)

    def head(self, classes: Sequence[str], *, templates: Templates | None = None) -> Float[Tensor, "C D"]:
        """Class embeddings of length 1. `templates` are the name of a set, a sentence with {}, or several.

        They are those that the session was given, or else the text tower's.
        """
        given = self._class_embeddings
        if given:
            missing = next((name for name in classes if name not in given), None)
            if missing is not None:
                raise ModelError(unknown_name("class embedding", missing, given))
            return torch.stack([given[name] for name in classes])
        return self._cached_head(tuple(classes), find_templates(templates or self.backbone.templates))

    @property
    def reads_class_names(self) -> bool:
        """Whether `head` has embeddings: from a text tower, or given to the session."""
        return self.backbone.encode_text is not None or bool(self._class_embeddings)

    def starting_head(self, support: Support, *, templates: Templates | None = None) -> Float[Tensor, "C D"]:
        """Class embeddings of length 1 that few-shot adaptation starts from.

        Those of the class names or, where nothing reads them, the prototypes of the support: the mean feature
        of each class.
        """
        classes = check_class_names(support.classes, at_least=2)
        if self.reads_class_names:
            return self.head(classes, templates=templates).clone()
        labels = torch.tensor(support.labels, device=self.backbone.device)
        return class_prototypes(self.features(support.images), labels, len(classes))

    def features(self, images: Sequence[Image]) -> Float[Tensor, "N D"]:
        """Image features of length 1, float32, on the model's device; cached for each image."""
        if self.cache is None:
            return torch.cat(list(self._compute_features(images))).to(self.backbone.device)
        precision = runtime.autocast_dtype(self.backbone.device)
        facts = [self.weights_id] if precision is None else [self.weights_id, str(precision)]
        found: dict[str, Tensor] = {}
        missing: dict[str, Image] = {}  # a batch at most
        keys = []
        for image in images:
            keys.append(key := cache_key("image", *facts, image.digest))
            if key in found or key in missing:
                continue
            row = self.cache.get_tensor(key)
            if row is None:
                missing[key] = image
            else:
                found[key] = row
            if len(missing) == BATCH:
                found |= self._compute_and_store(missing)
                missing = {}
        found |= self._compute_and_store(missing)
        # back in the order of the images
        return torch.stack([found[key] for key in keys]).to(self.backbone.device)

    def _compute_and_store(self, missing: Mapping[str, Image]) -> dict[str, Tensor]:
        """Features (D) by cache key, of images that the cache lacks."""
        assert self.cache is not None
        computed = (row for batch in self._compute_features(list(missing.values())) for row in batch)
        found = dict(zip(missing, computed, strict=True))
        for key, row in found.items():
            self.cache.put_tensor(key, row)
        return found

    # ---- the bank, and hashes that identify the weights

    @functools.cached_property
    def bank_path(self) -> Path | None:
        """The bank file, or None; searched on first use."""
        given = self._given_bank_path
        return given() if callable(given) else given

    @functools.cached_property
    def bank(self) -> TaskVectorBank:
        """The task vectors, on the model's device, read on first use; a large bank is a `TieredBank`."""
        if self.bank_path is None:
            raise BankError(
                f"{self.backbone.name} has no bank of task vectors on this machine. Open it with bank=FILE; "
                f"`atlas bank list` tells which public ones there are, and `atlas bank import` builds them."
            )
        return open_bank(
            self.bank_path, self.backbone, memory_limit=self._bank_memory, shared=self._share_bank
        )

    @functools.cached_property
    def weights_id(self) -> str:
        """A quick hash of the model for cache keys: its activation, and the names, shapes and some numbers of
        the tensors of its image tower."""
        return _sample_hash(self.backbone.visual, activation=self.backbone.activation)

    @functools.cached_property
    def fingerprint(self) -> str:
        """The hash of the image tower's weights and buffers, as recipes store it; computed once."""
        return fingerprint(dict(self.backbone.visual.state_dict()))

    @functools.cached_property
    def _base_fingerprint(self) -> str:
        """The hash of the image tower's parameters, as banks store it; computed once."""
        return fingerprint(dict(self.backbone.visual.named_parameters()))

    # ---- adapting

    def few_shot(
        self,
        support: Support,
        *,
        method: str = AUTO,
        config: FewShotConfig | None = None,
        bank: TaskVectorBank | None = None,
        layout: Layout | None = None,
        validation: Support | None = None,
        templates: Templates | None = None,
        budget: int | None = None,
        select: str = "gradient",
        memory_limit: float | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """A run that adapts to a few labelled images with the task vectors of `bank`, by default its own.

        `auto` learns coefficients and a head, measures them on held-out images of the support, and keeps
        zero-shot where they do not help. The other methods are the rows of `adapt.methods.FEW_SHOT_METHODS`;
        with `validation`, more images of the same classes, they keep their best epoch. Where the class names
        cannot be read, every method starts from prototypes (`starting_head`) instead of zero-shot.

        `templates`, as `head` takes them, replace the model's own; the recipe records them.

        With `budget=8` only eight task vectors are used, chosen for the support: `select="gradient"` takes in
        every block those that change the loss most, `"features"` those of similar images. `memory_limit`, in
        MiB, makes the folds of `auto` train one after another where they do not fit side by side.

        `paper` streams its images: of 100,000 at 224 px, a temporary file of 15 GB holds the pixels, and
        memory one batch of views and the features of each image (2 KB at 512 dimensions). With a `share`
        below 1, and by all other methods, the frozen prefix's activations of every view are kept in memory;
        `paper+tip` and `paper+lpp` stream, but Tip-Adapter's cache grows with the images.
        """
        find_method("few-shot", method)
        resources = FewShotResources(budget=budget, select=select, memory_limit=memory_limit)
        if validation is not None:
            _check_validation(support, validation, method=method)
        chosen = config or FewShotConfig()
        sentences = _find_chosen(templates)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            text = self.starting_head(support, templates=sentences)
            task = yield from self._read_task("support", support, text, stop)
            context = self._bank_context(
                (task,), bank=bank, templates=sentences, prototypes=not self.reads_class_names
            )
            if validation is not None:
                more = yield from self._read_task("validation", validation, task.text, stop)
                context = dataclasses.replace(context, validation=more)
            steps = adapt_few_shot(
                context,
                method=method,
                config=chosen,
                layout=layout,
                seed=seed,
                stop=stop,
                resources=resources,
            )
            return (yield from steps)

        return Run(start)

    def continue_from(
        self,
        recipe: Recipe,
        more: Support,
        *,
        config: FewShotConfig | None = None,
        bank: TaskVectorBank | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """A run that learns on from a recipe with more labelled images, of its classes or of new ones too.

        Coefficients and head start where the recipe stands, which is all that it keeps of earlier images; the
        new images decide whether learning on helped (`adapt.continued`). To learn from all images alike,
        give all of them to `few_shot`.
        """
        vectors = self._bank_of(recipe, bank)
        chosen = config or FewShotConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            context = self._continued_context(recipe, more, bank=vectors)
            return continue_few_shot(context, recipe, config=chosen, seed=seed, stop=stop)

        return Run(start)

    def check(self, support: Support, *, templates: Templates | None = None, seed: int = 0) -> ImageCheck:
        """Labels of the support that look wrong, images that fit nowhere, and near-duplicates."""
        text = self.starting_head(support, templates=templates)
        pixels = self.pixels(support.images)
        labels = torch.tensor(support.labels, device=self.backbone.device)
        return check_images(
            multi_level_features(self.backbone, pixels, labels, text),
            pixels,
            names=image_names(support.images),
            classes=support.classes,
            from_text=self.reads_class_names,
            seed=seed,
        )

    def test_time(
        self,
        images: Sequence[ImageSource],
        classes: Sequence[str],
        *,
        objective: str = AUTO,
        config: TestTimeConfig | None = None,
        bank: TaskVectorBank | None = None,
        templates: Templates | None = None,
        budget: int | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """A run that adapts to images without labels, each of which may be of any of `classes`.

        `auto` keeps zero-shot where its checks advise against adapting. The other methods are the rows of
        `adapt.methods.UNLABELLED_METHODS`. With a `budget`, only so many task vectors are used: those whose
        data sets look most like the images. `paper` streams its images as `few_shot` does, with the features
        and logits of each in memory; other methods keep activations of all views.
        """
        find_method("test-time", objective)
        chosen, vectors = config or TestTimeConfig(), VectorBudget(budget=budget)
        sentences = _find_chosen(templates)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            check_class_names(classes, at_least=2)
            pixels = yield from self._read_pixels(self.read_images(images), stop)
            context = self._unlabelled_context(pixels, classes, bank=bank, templates=sentences)
            steps = adapt_unlabelled(
                context, method=objective, config=chosen, seed=seed, stop=stop, vectors=vectors
            )
            return (yield from steps)

        return Run(start)

    def test_time_norms(
        self,
        images: Sequence[ImageSource],
        classes: Sequence[str],
        *,
        method: str,
        config: TestTimeConfig | None = None,
        bank: TaskVectorBank | None = None,
        templates: Templates | None = None,
        seed: int = 0,
    ) -> Run[NormsResult]:
        """A run of a baseline that tunes the norm layers, one of `NORM_BASELINES`. It gives no recipe."""
        chosen = config or TestTimeConfig()
        sentences = _find_chosen(templates)

        def start(stop: threading.Event) -> Generator[Step, None, NormsResult]:
            check_class_names(classes, at_least=2)
            pixels = self.pixels(self.read_images(images))
            context = self._unlabelled_context(pixels, classes, bank=bank, templates=sentences)
            return adapt_norms(context, method=method, config=chosen, seed=seed, stop=stop)

        return Run(start)

    def stream(
        self,
        classes: Sequence[str],
        *,
        objective: str = AUTO,
        config: StreamConfig | None = None,
        learning: TestTimeConfig | None = None,
        bank: TaskVectorBank | None = None,
        templates: Templates | None = None,
        seed: int = 0,
    ) -> Stream:
        """A stream that answers images one at a time and adapts to the images it has seen."""
        sentences = _find_chosen(templates)
        context = self._unlabelled_context(self.pixels([]), classes, bank=bank, templates=sentences)

        def read(source: ImageSource) -> tuple[Image, Tensor]:
            (image,) = self.read_images([source])
            return image, self.pixels([image])[0]

        return Stream(
            context,
            read=read,
            make_predictor=lambda recipe: self.predictor(recipe, bank=context.bank),
            objective=objective,
            config=config,
            learning=learning,
            seed=seed,
        )

    def negate(
        self,
        target: Support,
        control: Support,
        *,
        vector: str | None = None,
        method: str = AUTO,
        config: NegateConfig | None = None,
        bank: TaskVectorBank | None = None,
        keep: float | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """A run that forgets the target's classes while the control keeps a share, `keep`, of its accuracy.

        `vector` names the target's own task vector, which the scalar search scales; by default it is the one
        whose training images are most similar to the target's.
        """
        chosen = config or NegateConfig()
        chosen = chosen if keep is None else dataclasses.replace(chosen, keep=keep)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            context = self._context({TARGET: target, CONTROL: control}, bank=bank)
            return negate(context, vector=vector, method=method, config=chosen, seed=seed, stop=stop)

        return Run(start)

    def add(
        self,
        tasks: Mapping[str, Support] | Sequence[Support],
        *,
        method: str = AUTO,
        config: AddConfig | None = None,
        bank: TaskVectorBank | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """A run that makes one model for several tasks.

        By default it uses the tasks' own vectors, or the whole bank where one task has none in it.
        """
        supports, chosen = find_named_tasks(tasks), config or AddConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            vectors = find_task_vectors(self.bank, list(supports)) if bank is None else bank
            context = self._context(supports, bank=vectors)
            return add(context, method=method, config=chosen, seed=seed, stop=stop)

        return Run(start)

    # ---- using what was learned

    def adapted(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> nn.Module:
        """The image tower at the recipe's coefficients: an ordinary module, as fast as the base model.

        Linear vectors give no such weights, and are refused; `predictor` answers with them.
        """
        tower = self.tower(recipe, bank=bank)
        if isinstance(tower, TangentTower):
            raise BankError(
                "this recipe mixes linear task vectors, which move the tower's tangent and no weights: there "
                "are none to give away. Keep the recipe, and let `predictor` answer with it."
            )
        return tower

    def tower(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> nn.Module:
        """The image tower at the recipe's coefficients, frozen: pixels as the model takes them to features.

        With linear vectors it is a `TangentTower`, about half as fast as the base model.
        """
        vectors = self._bank_of(recipe, bank)
        self._require_own_bank(vectors)
        return build_tower(self.backbone.visual, vectors, recipe.coefficients)

    def predictor(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> Callable[[Tensor], Tensor]:
        """The recipe's model as a function from pixels (N 3 S S) uint8 to logits (N C)."""
        return as_predictor(recipe, self.tower(recipe, bank=bank), self.backbone, self._head_of(recipe))

    def calibrate(
        self,
        recipe: Recipe,
        held_out: Support,
        *,
        kept_share: float = KEPT_SHARE,
        bank: TaskVectorBank | None = None,
    ) -> Recipe:
        """The recipe with a temperature and a threshold from labelled images that it has not learned from.

        The threshold keeps `kept_share` of images of known classes, as far as so few images can promise it.
        """
        unknown = [name for name in held_out.classes if name not in recipe.classes]
        if unknown:
            raise SupportError(unknown_name("class", unknown[0], recipe.classes))
        logits = self.logits(recipe, self.pixels(held_out.images), bank=bank)
        labels = [recipe.classes.index(held_out.classes[label]) for label in held_out.labels]
        calibration = calibrate(logits, torch.tensor(labels, device=logits.device), kept_share=kept_share)
        return dataclasses.replace(recipe, calibration=calibration)

    def logits(
        self, recipe: Recipe, pixels: UInt8[Tensor, "N 3 S S"], *, bank: TaskVectorBank | None = None
    ) -> Float[Tensor, "N C"]:
        """Logits of the recipe's model, which is built for this one call; to reuse it, see `predictor`."""
        return self.predictor(recipe, bank=bank)(pixels)

    def compare(
        self, images: Sequence[ImageSource], recipe: Recipe, *, bank: TaskVectorBank | None = None
    ) -> Comparison:
        """Predictions for the same images by zero-shot, under the recipe's templates, and by its model."""
        return self.comparer(recipe, bank=bank)(images)

    def comparer(
        self, recipe: Recipe, *, bank: TaskVectorBank | None = None
    ) -> Callable[[Sequence[ImageSource]], Comparison]:
        """`compare` of one recipe as a function of the images: its model is built once, here."""
        predict, head = self.predictor(recipe, bank=bank), self._head_of(recipe)

        def compare(images: Sequence[ImageSource]) -> Comparison:
            read = self.read_images(images)
            adapted = predictions_from_logits(
                image_names(read),
                recipe.classes,
                predict(self.pixels(read)),
                calibration=recipe.calibration,
            )
            return Comparison(self._predict(read, recipe.classes, head), adapted)

        return compare

    def effects(
        self, recipe: Recipe, images: Sequence[ImageSource], *, bank: TaskVectorBank | None = None
    ) -> list[VectorEffect]:
        """What each task vector of the recipe does to the answers, the one with the largest effect first.

        Each is left out in turn, and the images are answered again; a recipe that draws on none has no
        effects.
        """
        vectors = self._bank_of(recipe, bank)
        pixels = self.pixels(self.read_images(images))
        return measure_effects(recipe, self.backbone, vectors, self._head_of(recipe), pixels)

    def export(
        self,
        recipe: Recipe,
        folder: Path | str,
        *,
        format: str = "onnx",
        int8: bool = False,
        bank: TaskVectorBank | None = None,
    ) -> Exported:
        """Write the recipe's model to a new folder, in one of `exporting.formats.FORMATS`.

        `int8` stores weights in eight bits, where the format has them.
        """
        check_export(folder, format=format, int8=int8)
        return write_export(self.classifier(recipe, bank=bank), folder, format=format, int8=int8)

    def classifier(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> Classifier:
        """The recipe's model with its classes and its preprocessing, as exports are made from it."""
        tower = self.adapted(recipe, bank=bank)
        network = RecipeNetwork(recipe, tower, self.backbone, self._head_of(recipe))
        return Classifier(recipe, self.backbone, network)

    def _head_of(self, recipe: Recipe) -> Float[Tensor, "C D"]:
        """The class embeddings that the recipe holds, or else those of its class names."""
        try:
            check_class_names(recipe.classes, at_least=2)
        except SupportError as error:
            raise RecipeError(f"this recipe's classes cannot be asked about: {error}") from error
        kept = recipe.class_embeddings
        if kept is None:
            return self.head(recipe.classes, templates=recipe.templates)
        wanted = (len(recipe.classes), self.backbone.dim)
        if tuple(kept.shape) != wanted:
            raise RecipeError(f"its class embeddings are {tuple(kept.shape)}, but the model needs {wanted}.")
        return F.normalize(kept.to(self.backbone.device).float(), dim=-1)

    # ---- contexts

    def _context(
        self,
        tasks: Mapping[str, Support],
        *,
        bank: TaskVectorBank | None,
        templates: tuple[str, ...] | None = None,
    ) -> AdaptContext:
        """This model, a bank that was made for it, and the labelled images of one or more tasks."""
        data = []
        for name, support in tasks.items():
            classes = check_class_names(support.classes, at_least=2)
            text = self.head(classes, templates=templates).clone()
            labels = torch.tensor(support.labels, device=self.backbone.device)
            data.append(TaskData(name, support.classes, text, self.pixels(support.images), labels))
        return self._bank_context(tuple(data), bank=bank, templates=templates)

    def _bank_context(
        self,
        tasks: tuple[TaskData, ...],
        *,
        bank: TaskVectorBank | None,
        templates: tuple[str, ...] | None = None,
        prototypes: bool = False,
    ) -> AdaptContext:
        vectors = self.bank if bank is None else bank
        self._require_own_bank(vectors)
        return AdaptContext(
            self.backbone, vectors, self.fingerprint, tasks, templates=templates, prototypes=prototypes
        )

    def _read_task(
        self, name: str, support: Support, text: Float[Tensor, "C D"], stop: threading.Event
    ) -> Generator[Step, None, TaskData]:
        """A task with labels, after the steps of reading its images."""
        pixels = yield from self._read_pixels(support.images, stop)
        labels = torch.tensor(support.labels, device=self.backbone.device)
        return TaskData(name, support.classes, text, pixels, labels)

    def _read_pixels(
        self, images: Sequence[Image], stop: threading.Event
    ) -> Generator[Step, None, UInt8[Tensor, "N 3 S S"]]:
        """The images at the model's input size; with steps of the phase `read` where they are streamed."""
        if not isinstance(images, ImageFiles):
            return self.pixels(images)
        pixels, progress = allocate_pixels(len(images), self.backbone.preprocessing.size), Progress()
        for first in range(0, len(images), BATCH):
            if stop.is_set():
                raise SupportError(
                    f"the run was stopped when {first} of {len(images)} images had been read: it has learned "
                    "nothing yet. Start it again."
                )
            yield progress.phase("read", first, len(images), share=0.0)
            part = images[first : first + BATCH]
            pixels[first : first + len(part)] = self.pixels(part)
        return pixels

    def _continued_context(self, recipe: Recipe, more: Support, *, bank: TaskVectorBank) -> AdaptContext:
        """The recipe's classes and then new ones, with the labelled images of `more`."""
        added = tuple(name for name in more.classes if name not in recipe.classes)
        classes = check_class_names((*recipe.classes, *added), at_least=2)
        text = self._head_of(recipe)
        if added and not self.reads_class_names:
            raise SupportError(
                f"'{added[0]}' is no class of the recipe, and {self.backbone.name} cannot read class names. "
                "Adapt anew to the images of all classes."
            )
        if added:
            text = torch.cat([text, self.head(added, templates=recipe.templates)])
        numbers = [classes.index(more.classes[label]) for label in more.labels]
        labels = torch.tensor(numbers, device=self.backbone.device)
        task = TaskData("support", classes, text.clone(), self.pixels(more.images), labels)
        return self._bank_context((task,), bank=bank, templates=recipe.templates)

    def _unlabelled_context(
        self,
        pixels: UInt8[Tensor, "N 3 S S"],
        classes: Sequence[str],
        *,
        bank: TaskVectorBank | None = None,
        templates: tuple[str, ...] | None = None,
    ) -> AdaptContext:
        """This model, a bank that was made for it, and one task without labels, or without images yet."""
        names = check_class_names(classes, at_least=2)
        task = TaskData("images", names, self.head(names, templates=templates).clone(), pixels)
        return self._bank_context((task,), bank=bank, templates=templates)

    def _bank_of(self, recipe: Recipe, bank: TaskVectorBank | None) -> TaskVectorBank:
        """The given bank, or the session's own, once it is known that the recipe is for this model and bank.

        The model is asked first: for a recipe of another model, it does not matter what bank there is.
        """
        recipe.check(model_fingerprint=self.fingerprint)
        vectors = self.bank if bank is None else bank
        recipe.check(model_fingerprint=self.fingerprint, bank_fingerprint=vectors.fingerprint)
        return vectors

    def _require_own_bank(self, bank: TaskVectorBank) -> None:
        """Raise unless the bank was made for this model."""
        if self._base_fingerprint != bank.base:
            raise BankError(
                f"this bank was made for another model than {self.backbone.name}. "
                f"Open the model that it names (`atlas bank show FILE`), or a bank for this one."
            )

    # ---- towers

    def _compute_head(self, classes: tuple[str, ...], templates: tuple[str, ...]) -> Float[Tensor, "C D"]:
        key = self.weights_id if self.cache is not None else ""
        return text_head(self.backbone, classes, templates, cache=self.cache, key=key)

    def _compute_features(self, images: Sequence[Image]) -> Iterator[Float[Tensor, "B D"]]:
        """Features of length 1 on the CPU, a batch at a time."""
        spec = self.backbone.preprocessing
        for start in range(0, len(images), BATCH):
            batch = to_batch(
                images[start : start + BATCH],
                size=spec.size,
                mean=spec.mean,
                std=spec.std,
                resize=spec.resize,
                interpolation=spec.interpolation,
            )
            with torch.inference_mode(), runtime.autocast(self.backbone.device):
                features = F.normalize(self.backbone.visual(batch.to(self.backbone.device)).float(), dim=-1)
            yield features.cpu().clone()


def _find_chosen(templates: Templates | None) -> tuple[str, ...] | None:
    """The sentences of the templates that a caller chose; None where the model's own are wanted."""
    return find_templates(templates) if templates else None


def _check_validation(support: Support, validation: Support, *, method: str) -> None:
    """Raise unless the validation images can be used with this method."""
    if method == AUTO:
        raise SupportError(
            "auto holds images out by itself. Name a method, such as 'paper', or give no validation images."
        )
    if validation.classes != support.classes:
        raise SupportError(
            f"the validation images are of {', '.join(validation.classes)}, but the support is of "
            f"{', '.join(support.classes)}. Give both the same classes in the same order."
        )


def _check_embeddings(given: Mapping[str, Tensor], backbone: Backbone) -> dict[str, Tensor]:
    """The vectors (D) by class name, of length 1, on the model's device."""
    checked = {}
    for name, vector in zip(check_class_names(tuple(given), at_least=0), given.values(), strict=True):
        row = torch.as_tensor(vector).float()
        if tuple(row.shape) != (backbone.dim,) or not bool(row.isfinite().all()) or not bool(row.any()):
            raise ModelError(
                f"the class embedding of '{name}' is of shape {tuple(row.shape)}, has NaN or is all 0, but "
                f"{backbone.name} needs {backbone.dim} finite numbers. Give a vector of its own space."
            )
        checked[name] = F.normalize(row, dim=0).to(backbone.device)
    return checked


def _sample_hash(module: nn.Module, *, activation: str) -> str:
    """A hash of the activation and of names, shapes and evenly spaced numbers; training changes some."""
    digest = hashlib.sha256(activation.encode())
    for name, tensor in module.state_dict().items():
        flat = tensor.detach().flatten()
        sample = flat[:: max(1, len(flat) // HASHED_NUMBERS)].cpu().double()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} ".encode())
        digest.update(sample.numpy().tobytes())
    return digest.hexdigest()
