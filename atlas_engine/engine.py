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
from atlas_engine.adapt.arithmetic.addition import add, named_tasks, task_vectors_for
from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.adapt.arithmetic.negation import CONTROL, TARGET, negate
from atlas_engine.adapt.context import AdaptContext, TaskData
from atlas_engine.adapt.few_shot import FewShotConfig, FewShotResources, adapt_few_shot
from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.selection import VectorBudget
from atlas_engine.adapt.stream import Stream, StreamConfig
from atlas_engine.adapt.unlabelled import NormsResult, TestTimeConfig, adapt_norms, adapt_unlabelled
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import find_bank, load_bank
from atlas_engine.bank.vector import fingerprint
from atlas_engine.cache import Cache, cache_key
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.templates import Templates, find_templates
from atlas_engine.clip.text import check_class_names, text_head
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import materialise
from atlas_engine.config import cache_folder
from atlas_engine.data.decode import ImageSource, read_image
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import stack_pixels, to_batch
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, ModelError, RecipeError, SupportError, unknown_name
from atlas_engine.heads.base import class_prototypes
from atlas_engine.predictions import Comparison, Predictions, predictions_from_logits
from atlas_engine.recipe import Recipe, as_predictor
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
) -> Atlas:
    """A session with the model called `model`; `cache=False` keeps nothing on disk.

    `bank` is a bank file for that model. By default it is the model's own bank, where this machine has one:
    the bundled model's bank is installed with it, and `prepare` builds banks from public checkpoints. A bank
    is read when it is first needed. `class_embeddings` are vectors (D) by class name, to be used instead of
    the text tower's.
    """
    runtime.keep_memory()
    store = cache if isinstance(cache, Cache) else Cache(cache_folder()) if cache else None
    backbone = open_backbone(model, device=runtime.pick_device(device))

    def find() -> Path | None:
        return find_bank(dict(backbone.visual.named_parameters()))

    return Atlas(
        backbone, bank_path=Path(bank) if bank else find, cache=store, class_embeddings=class_embeddings
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
    ) -> None:
        """`bank_path` is the bank file, or a function that finds it when a bank is first needed.

        `class_embeddings` are vectors (D) by class name, to be used instead of the text tower's.
        """
        self.backbone = backbone
        self._class_embeddings = _check_embeddings(class_embeddings or {}, backbone)
        self.cache = cache
        self._given_bank_path = bank_path
        self._cached_head = functools.lru_cache(maxsize=CACHED_HEADS)(self._compute_head)

    def close(self) -> None:
        """Close the cache. The model's memory is freed with this object."""
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
        return predictions_from_logits(tuple(image.name for image in images), classes, logits)

    def read_images(self, images: Sequence[ImageSource]) -> list[Image]:
        """Decoded and checked images, from paths, bytes, PIL images, arrays or images read before."""
        if isinstance(images, (str, bytes)):
            raise SupportError("images must be a list, but got one image. Pass [image].")
        if not len(images):
            raise SupportError("got no images. Give at least one.")
        return [read_image(image) for image in images]

    def pixels(self, images: Sequence[Image]) -> UInt8[Tensor, "N 3 S S"]:
        """The images at the model's input size; (0 3 S S) for no images."""
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
        # look every image up
        keys = [cache_key("image", self.weights_id, image.digest) for image in images]
        found = {key: self.cache.get_tensor(key) for key in keys}
        # compute and store what is missing
        missing = {key: image for key, image in zip(keys, images, strict=True) if found[key] is None}
        computed = (row for batch in self._compute_features(list(missing.values())) for row in batch)
        for key, row in zip(missing, computed, strict=True):
            found[key] = row
            self.cache.put_tensor(key, row)
        # back in the order of the images
        rows = [row for row in (found[key] for key in keys) if row is not None]
        return torch.stack(rows).to(self.backbone.device)

    # ---- the bank, and hashes that identify the weights

    @functools.cached_property
    def bank_path(self) -> Path | None:
        """The bank file, or None; searched on first use."""
        given = self._given_bank_path
        return given() if callable(given) else given

    @functools.cached_property
    def bank(self) -> TaskVectorBank:
        """The task vectors, on the model's device; read on first use."""
        if self.bank_path is None:
            raise BankError(
                f"{self.backbone.name} has no bank of task vectors on this machine. Open it with bank=FILE; "
                f"`atlas bank list` tells which public ones there are, and `atlas bank import` builds them."
            )
        return load_bank(self.bank_path, device=self.backbone.device)

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
        """
        find_method("few-shot", method)
        resources = FewShotResources(budget=budget, select=select, memory_limit=memory_limit)
        if validation is not None:
            _check_validation(support, validation, method=method)
        chosen = config or FewShotConfig()
        sentences = _find_chosen(templates)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            task = self._task_data("support", support, self.starting_head(support, templates=sentences))
            context = self._bank_context(
                (task,), bank=bank, templates=sentences, prototypes=not self.reads_class_names
            )
            if validation is not None:
                more = self._task_data("validation", validation, task.text)
                context = dataclasses.replace(context, validation=more)
            return adapt_few_shot(
                context,
                method=method,
                config=chosen,
                layout=layout,
                seed=seed,
                stop=stop,
                resources=resources,
            )

        return Run(start)

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
        data sets look most like the images.
        """
        find_method("test-time", objective)
        chosen, vectors = config or TestTimeConfig(), VectorBudget(budget=budget)
        sentences = _find_chosen(templates)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            context = self._unlabelled_context(images, classes, bank=bank, templates=sentences)
            return adapt_unlabelled(
                context, method=objective, config=chosen, seed=seed, stop=stop, vectors=vectors
            )

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
            context = self._unlabelled_context(images, classes, bank=bank, templates=sentences)
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
        context = self._unlabelled_context(None, classes, bank=bank, templates=sentences)

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
        supports, chosen = named_tasks(tasks), config or AddConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            vectors = task_vectors_for(self.bank, list(supports)) if bank is None else bank
            context = self._context(supports, bank=vectors)
            return add(context, method=method, config=chosen, seed=seed, stop=stop)

        return Run(start)

    # ---- using what was learned

    def adapted(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> nn.Module:
        """The image tower at the recipe's coefficients: an ordinary module, as fast as the base model."""
        vectors = self.bank if bank is None else bank
        recipe.check(model_fingerprint=self.fingerprint, bank_fingerprint=vectors.fingerprint)
        self._require_own_bank(vectors)
        base = dict(self.backbone.visual.named_parameters())
        composer = Composer(base, vectors, recipe.coefficients.layout)
        theta = composer.compose(recipe.coefficients.values.to(vectors.device))
        return materialise(self.backbone.visual, theta)

    def predictor(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> Callable[[Tensor], Tensor]:
        """The recipe's model as a function from pixels (N 3 S S) uint8 to logits (N C)."""
        return as_predictor(recipe, self.adapted(recipe, bank=bank), self.backbone, self._head_of(recipe))

    def logits(
        self, recipe: Recipe, pixels: UInt8[Tensor, "N 3 S S"], *, bank: TaskVectorBank | None = None
    ) -> Float[Tensor, "N C"]:
        """Logits of the recipe's model, which is built for this one call; to reuse it, see `predictor`."""
        return self.predictor(recipe, bank=bank)(pixels)

    def compare(
        self, images: Sequence[ImageSource], recipe: Recipe, *, bank: TaskVectorBank | None = None
    ) -> Comparison:
        """Predictions for the same images by zero-shot, under the recipe's templates, and by its model."""
        read = self.read_images(images)
        logits = self.logits(recipe, self.pixels(read), bank=bank)
        adapted = predictions_from_logits(tuple(image.name for image in read), recipe.classes, logits)
        return Comparison(self._predict(read, recipe.classes, self._head_of(recipe)), adapted)

    def _head_of(self, recipe: Recipe) -> Float[Tensor, "C D"]:
        """The class embeddings that the recipe holds, or else those of its class names."""
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
            data.append(self._task_data(name, support, self.head(classes, templates=templates).clone()))
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

    def _task_data(self, name: str, support: Support, text: Float[Tensor, "C D"]) -> TaskData:
        return TaskData(
            name,
            support.classes,
            text,
            self.pixels(support.images),
            torch.tensor(support.labels, device=self.backbone.device),
        )

    def _unlabelled_context(
        self,
        images: Sequence[ImageSource] | None,
        classes: Sequence[str],
        *,
        bank: TaskVectorBank | None = None,
        templates: tuple[str, ...] | None = None,
    ) -> AdaptContext:
        """This model, a bank that was made for it, and one task without labels, or without images yet."""
        names = check_class_names(classes, at_least=2)
        read = [] if images is None else self.read_images(images)
        task = TaskData("images", names, self.head(names, templates=templates).clone(), self.pixels(read))
        return self._bank_context((task,), bank=bank, templates=templates)

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
            with torch.inference_mode():
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
