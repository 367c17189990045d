"""The session object: a model on a device, and what one can do with it. Sits above every other part.

    with atlas.open() as engine:
        engine.predict(["a.jpg", "b.jpg"], ["otter", "seal"]).top(3)
        result = engine.few_shot(Support.from_folder("my_photos")).result()

Opening is expensive and using it is cheap, so open once and keep it.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.adapt.arithmetic.addition import add, named_tasks, task_vectors_for
from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.adapt.arithmetic.negation import CONTROL, TARGET, negate
from atlas_engine.adapt.arithmetic.scene import ArithmeticContext as ManyTasks
from atlas_engine.adapt.arithmetic.scene import ArithmeticTask
from atlas_engine.adapt.few_shot import (
    AUTO,
    FewShotConfig,
    FewShotContext,
    adapt_few_shot,
    find_few_shot_method,
)
from atlas_engine.adapt.methods import find_unlabelled_method
from atlas_engine.adapt.stream import Stream, StreamConfig
from atlas_engine.adapt.unlabelled import (
    NormsResult,
    TestTimeConfig,
    UnlabelledContext,
    adapt_norms,
    adapt_unlabelled,
)
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import find_bank, load_bank
from atlas_engine.bank.vector import fingerprint
from atlas_engine.cache import Cache, cache_key
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.text import check_class_names, find_templates, text_head
from atlas_engine.compose.coefficients import Layout
from atlas_engine.compose.compose import Composer
from atlas_engine.compose.encoder import materialise
from atlas_engine.config import cache_folder
from atlas_engine.data.decode import ImageSource, read_image
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import to_batch, to_pixels
from atlas_engine.data.support import Support
from atlas_engine.errors import BankError, SupportError
from atlas_engine.predictions import Comparison, Predictions, predictions_from_logits
from atlas_engine.recipe import Recipe, as_predictor
from atlas_engine.result import AdaptResult, Run, Step

__all__ = ["Atlas", "open", "predict"]

BATCH = 32
HEADS = 16  # sets of class names whose embeddings are kept in memory


def open(
    model: str = "bundled",
    *,
    bank: Path | str | None = None,
    device: str | None = None,
    cache: Cache | bool = True,
) -> Atlas:
    """A session with the model called `model`; `cache=False` keeps nothing on disk.

    `bank` is a bank file for that model. Without one it is the model's own, if there is one on this machine:
    the bundled model's ships, and `prepare` builds those of public checkpoints. It is read when first needed.
    """
    runtime.keep_memory()
    store = Cache(cache_folder()) if cache is True else None if cache is False else cache
    backbone = open_backbone(model, device=runtime.pick_device(device))
    path = Path(bank) if bank else find_bank(dict(backbone.visual.named_parameters()))
    return Atlas(backbone, bank_path=path, cache=store)


def predict(images: Sequence[ImageSource], classes: Sequence[str], *, model: str = "bundled") -> Predictions:
    """Zero-shot predictions, opening and closing the model on the way."""
    with open(model) as engine:
        return engine.predict(images, classes)


class Atlas:
    """A model on a device, with a cache of what it has already seen and read."""

    def __init__(
        self, backbone: Backbone, *, bank_path: Path | None = None, cache: Cache | None = None
    ) -> None:
        self.backbone = backbone
        self.bank_path = bank_path
        self.cache = cache
        self._read_head = functools.lru_cache(maxsize=HEADS)(self._head)

    def predict(
        self, images: Sequence[ImageSource], classes: Sequence[str], *, templates: str | None = None
    ) -> Predictions:
        """Zero-shot probabilities of each image over `classes`.

        logits = logit_scale · normalise(features) @ headᵀ        # (N D) @ (D C) -> (N C)
        """
        names = check_class_names(classes, at_least=2)
        pictures = self.pictures(images)
        logits = self.backbone.logit_scale * self.features(pictures) @ self.head(names, templates=templates).T
        return predictions_from_logits(tuple(picture.name for picture in pictures), names, logits)

    def pictures(self, images: Sequence[ImageSource]) -> list[Image]:
        """The images read and guarded: paths, bytes, PIL images, arrays or pictures."""
        if isinstance(images, (str, bytes)):
            raise SupportError("images must be a list, but got one image. Pass [image].")
        if not len(images):
            raise SupportError("got no images. Give at least one.")
        return [read_image(image) for image in images]

    def head(self, classes: Sequence[str], *, templates: str | None = None) -> Tensor:
        """Class embeddings (C D), L2-normalised; `templates` is a set's name or a sentence with {}."""
        return self._read_head(tuple(classes), find_templates(templates or self.backbone.templates))

    def features(self, pictures: Sequence[Image]) -> Tensor:
        """Image features (N D), L2-normalised, in float32 on the device; cached by picture."""
        keys = [cache_key("image", self.fingerprint, picture.digest) for picture in pictures]
        found = {key: self.cache.get_tensor(key) for key in keys} if self.cache is not None else {}
        todo = {key: picture for key, picture in zip(keys, pictures, strict=True) if found.get(key) is None}
        for batch_keys, features in self._computed(todo):
            found.update(zip(batch_keys, features, strict=True))
            if self.cache is not None:
                for key, feature in zip(batch_keys, features, strict=True):
                    self.cache.put_tensor(key, feature)
        rows = [row for row in (found[key] for key in keys) if row is not None]
        return torch.stack(rows).to(self.backbone.device)

    @functools.cached_property
    def fingerprint(self) -> str:
        """What stands for the image tower's weights: of caches, banks and recipes."""
        return fingerprint(dict(self.backbone.visual.state_dict()))

    @functools.cached_property
    def bank(self) -> TaskVectorBank:
        """The task vectors, resident on the device; read when first asked for."""
        if self.bank_path is None:
            raise BankError(
                f"{self.backbone.name} has no bank of task vectors on this machine. Open it with bank=FILE; "
                f"`atlas bank list` tells which public ones there are, and `atlas bank import` builds them."
            )
        return load_bank(self.bank_path, device=self.backbone.device)

    def few_shot(
        self,
        support: Support,
        *,
        method: str = AUTO,
        config: FewShotConfig | None = None,
        bank: TaskVectorBank | None = None,
        layout: Layout | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """Adapt to the support's classes, with `bank` (the engine's own) to draw on.

        `auto` learns coefficients and a head together, holds images out to see whether that helps, and keeps
        zero-shot where it does not. The other methods are in `adapting.METHODS`.
        """
        find_few_shot_method(method)
        chosen = config or FewShotConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            text = self.head(check_class_names(support.classes, at_least=2)).clone()
            donors = self.bank if bank is None else bank
            self._base_blocks(donors)
            scene = FewShotContext(self.backbone, donors, support, text, self.fingerprint)
            return adapt_few_shot(scene, method=method, config=chosen, layout=layout, seed=seed, stop=stop)

        return Run(start)

    def test_time(
        self,
        images: Sequence[ImageSource],
        classes: Sequence[str],
        *,
        objective: str = AUTO,
        config: TestTimeConfig | None = None,
        bank: TaskVectorBank | None = None,
        seed: int = 0,
    ) -> Run[AdaptResult]:
        """Adapt to pictures without labels that may show any of `classes`.

        `auto` keeps zero-shot where a check says that adapting did not help. The other objectives are in
        `adapt.without_labels.METHODS`.
        """
        find_unlabelled_method(objective)
        chosen = config or TestTimeConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            scene = self.unlabelled(images, classes, bank=bank)
            return adapt_unlabelled(scene, method=objective, config=chosen, seed=seed, stop=stop)

        return Run(start)

    def test_time_norms(
        self,
        images: Sequence[ImageSource],
        classes: Sequence[str],
        *,
        method: str,
        config: TestTimeConfig | None = None,
        seed: int = 0,
    ) -> Run[NormsResult]:
        """The baselines of `test_time` that tune norm layers, `without_labels.NORMS`: answers, no recipe."""

        def start(stop: threading.Event) -> Generator[Step, None, NormsResult]:
            scene = self.unlabelled(images, classes)
            return adapt_norms(scene, method=method, config=config or TestTimeConfig(), seed=seed, stop=stop)

        return Run(start)

    def stream(
        self,
        classes: Sequence[str],
        *,
        objective: str = AUTO,
        config: StreamConfig | None = None,
        learning: TestTimeConfig | None = None,
        bank: TaskVectorBank | None = None,
        seed: int = 0,
    ) -> Stream:
        """Answers for pictures one by one as they arrive, each learning from those before it."""
        donors = self.bank if bank is None else bank

        def see(image: ImageSource) -> tuple[Image, Tensor]:
            (picture,) = self.pictures([image])
            return picture, self._squares([picture])[0]

        return Stream(
            self._scene([], check_class_names(classes, at_least=2), donors),
            see=see,
            by=lambda recipe: self.answering(recipe, bank=donors),
            objective=objective,
            config=config,
            learning=learning,
            seed=seed,
        )

    def unlabelled(
        self, images: Sequence[ImageSource], classes: Sequence[str], *, bank: TaskVectorBank | None = None
    ) -> UnlabelledContext:
        """Pictures and class names before this model, as `test_timing` takes them."""
        names = check_class_names(classes, at_least=2)
        return self._scene(self.pictures(images), names, self.bank if bank is None else bank)

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
        """Forget the target's classes while the control keeps a share (`keep`, or the config's) of its own.

        `vector` is the target's own, for the scalar search; by default the one whose images are most alike.
        """
        chosen = config or NegateConfig()
        chosen = chosen if keep is None else dataclasses.replace(chosen, keep=keep)

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            scene = self._many({TARGET: target, CONTROL: control}, self.bank if bank is None else bank)
            return negate(scene, vector=vector, method=method, config=chosen, seed=seed, stop=stop)

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
        """One model for several tasks; by default of their own vectors, where the bank has all of them."""
        several, chosen = named_tasks(tasks), config or AddConfig()

        def start(stop: threading.Event) -> Generator[Step, None, AdaptResult]:
            scene = self._many(several, task_vectors_for(self.bank, list(several)) if bank is None else bank)
            return add(scene, method=method, config=chosen, seed=seed, stop=stop)

        return Run(start)

    def adapted(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> nn.Module:
        """The image tower that a recipe describes: an ordinary module that costs what the base costs."""
        donors = self.bank if bank is None else bank
        recipe.check(model_fingerprint=self.fingerprint, bank_fingerprint=donors.fingerprint)
        composer = Composer(self._base_blocks(donors), donors, recipe.coefficients.layout)
        theta = composer.compose(recipe.coefficients.values.to(donors.device))
        return materialise(self.backbone.visual, theta)

    def answering(self, recipe: Recipe, *, bank: TaskVectorBank | None = None) -> Callable[[Tensor], Tensor]:
        """What answers by a recipe: uint8 squares (N 3 S S), as the tower takes them, to (N C)."""
        return as_predictor(recipe, self.adapted(recipe, bank=bank), self.backbone, self.head(recipe.classes))

    def logits(self, recipe: Recipe, squares: Tensor, *, bank: TaskVectorBank | None = None) -> Tensor:
        """What a recipe says of squares, once; `as_predictor` is for more than one time."""
        return self.answering(recipe, bank=bank)(squares)

    def compare(
        self, images: Sequence[ImageSource], recipe: Recipe, *, bank: TaskVectorBank | None = None
    ) -> Comparison:
        """The same images by zero-shot and by what a recipe describes."""
        pictures = self.pictures(images)
        names = tuple(picture.name for picture in pictures)
        adapted = predictions_from_logits(
            names, recipe.classes, self.logits(recipe, self._squares(pictures), bank=bank)
        )
        return Comparison(self.predict(pictures, recipe.classes), adapted)

    def close(self) -> None:
        """Let go of the cache; the model goes with the object."""
        if self.cache is not None:
            self.cache.close()

    def _base_blocks(self, bank: TaskVectorBank) -> dict[str, Tensor]:
        """The base model's parameters, if the bank was made for them."""
        weights: dict[str, Tensor] = dict(self.backbone.visual.named_parameters())
        if fingerprint(weights) != bank.base:
            raise BankError(
                f"this bank was made for another model than {self.backbone.name}. "
                f"Open the model that it names (`atlas bank show FILE`), or a bank for this one."
            )
        return weights

    def _many(self, tasks: Mapping[str, Support], bank: TaskVectorBank) -> ManyTasks:
        """Several tasks before this model, if the bank was made for it."""
        self._base_blocks(bank)
        heads = {name: self.head(check_class_names(one.classes, at_least=2)) for name, one in tasks.items()}
        several = tuple(ArithmeticTask(name, one, heads[name].clone()) for name, one in tasks.items())
        return ManyTasks(self.backbone, bank, several, self.fingerprint)

    def _scene(
        self, pictures: Sequence[Image], classes: tuple[str, ...], bank: TaskVectorBank
    ) -> UnlabelledContext:
        self._base_blocks(bank)
        side = self.backbone.preprocessing.size
        squares = self._squares(pictures) if pictures else torch.empty(0, 3, side, side, dtype=torch.uint8)
        return UnlabelledContext(
            self.backbone, bank, squares, classes, self.head(classes).clone(), self.fingerprint
        )

    def _squares(self, pictures: Sequence[Image]) -> Tensor:
        shape = self.backbone.preprocessing
        return torch.stack(
            [
                to_pixels(p, shape.size, resize=shape.resize, interpolation=shape.interpolation)
                for p in pictures
            ]
        )

    def _head(self, classes: tuple[str, ...], templates: tuple[str, ...]) -> Tensor:
        return text_head(self.backbone, classes, templates, cache=self.cache, key=self.fingerprint)

    def _computed(self, todo: dict[str, Image]) -> Iterator[tuple[list[str], Tensor]]:
        keys = list(todo)
        shape = self.backbone.preprocessing
        for start in range(0, len(keys), BATCH):
            some = keys[start : start + BATCH]
            images = to_batch(
                [todo[key] for key in some],
                size=shape.size,
                mean=shape.mean,
                std=shape.std,
                resize=shape.resize,
                interpolation=shape.interpolation,
            )
            with torch.inference_mode():
                features = F.normalize(self.backbone.visual(images.to(self.backbone.device)).float(), dim=-1)
            yield some, features.cpu().clone()

    def __enter__(self) -> Atlas:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Atlas({self.backbone!r})"
