"""`AtlasClassifier`: few-shot adaptation as a scikit-learn estimator.

    classifier = AtlasClassifier().fit(paths, ["otter", "seal", …])      # paths, arrays or PIL images
    classifier.predict(new), classifier.predict_proba(new)               # (N), (N C) in the order of classes_
    classifier.is_known(new)                                             # (N): False for "none of these"
    cross_val_score(AtlasClassifier(), paths, labels)                    # pipelines, joblib, clone: as usual

Labels may be of any type that sorts; the model reads them as class names, or `class_names` says how they are
called. What is fitted is a recipe, so a pickle of the estimator is small; the model is opened where it is
used, once per process. scikit-learn is an optional extra: `pip install "atlas-studio[sklearn]"`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.adapt.methods import AUTO
from atlas_engine.calibration import Calibration
from atlas_engine.data.decode import ImageSource
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.engine import open as open_atlas
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.result import AdaptResult

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import Tags
    from sklearn.utils.validation import check_is_fitted
except ModuleNotFoundError as error:
    raise ConfigError(
        'AtlasClassifier needs scikit-learn, which is not installed. Run: pip install "atlas-studio[sklearn]"'
    ) from error

__all__ = ["AtlasClassifier"]

Labels = Sequence[Any] | NDArray[Any]
Images = Sequence[ImageSource] | NDArray[Any]
OPEN_MODELS = 2  # that a process keeps open


class AtlasClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier of images that learns from a few of each class.

    After `fit`: `classes_` (sorted), `recipe_`, `result_` with its verdict, estimates and advice.
    """

    def __init__(
        self,
        model: str = "bundled",
        *,
        bank: str | Path | None = None,
        method: str = AUTO,
        steps: int | None = None,
        templates: str | None = None,
        class_names: Mapping[Any, str] | None = None,
        device: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.model = model
        self.bank = bank
        self.method = method
        self.steps = steps
        self.templates = templates
        self.class_names = class_names
        self.device = device
        self.random_state = random_state

    def fit(self, X: Images, y: Labels) -> AtlasClassifier:
        """Adapt to images and their labels, of two classes or more."""
        images, labels = _check_pair(X, y)
        self._learn(images, labels, known=np.unique(labels))
        return self

    def partial_fit(self, X: Images, y: Labels, classes: Labels | None = None) -> AtlasClassifier:
        """Learn on from more images, as `Atlas.continue_from` does; the first call is `fit`.

        Later images may be of some classes only, or of new ones. The first call needs an image of every one
        of `classes`, since a class without images cannot be learned.
        """
        images, labels = _check_pair(X, y)
        if not hasattr(self, "recipe_"):
            known = np.unique(labels if classes is None else np.asarray(classes))
            missing = [label for label in known if label not in labels]
            if missing:
                raise SupportError(
                    f"the first images show no '{missing[0]}'. Give at least one image of each class, or add "
                    "the class later, together with its images."
                )
            self._learn(images, labels, known=known)
            return self
        known = np.unique(np.concatenate([self.classes_, labels]))
        names = {label: self._name_of(label) for label in known}
        present = [label for label in known if label in labels]
        support = _support(self._session(), images, labels, present, [names[label] for label in present])
        run = self._session().continue_from(
            self.recipe_, support, config=self._config(), seed=self.random_state
        )
        self._keep(run.result(), known)
        return self

    def predict(self, X: Images) -> NDArray[Any]:
        """The likeliest class of each image, (N)."""
        answers = self._logits(X).argmax(dim=1).numpy()
        return np.asarray(self.classes_[answers])

    def predict_proba(self, X: Images) -> NDArray[np.float64]:
        """Probabilities (N C) in the order of `classes_`, with the recipe's temperature."""
        logits = self._logits(X)
        probs: NDArray[Any] = (self.recipe_.calibration or Calibration()).probs(logits).double().numpy()
        return np.asarray(probs / probs.sum(axis=1, keepdims=True), dtype=np.float64)

    def is_known(self, X: Images) -> NDArray[np.bool_]:
        """Whether each image is of one of the classes, (N); all are where nothing was held out to tell."""
        logits = self._logits(X)
        return np.asarray(~(self.recipe_.calibration or Calibration()).rejects(logits).numpy())

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False  # images, not rows of numbers
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True  # paths
        tags.no_validation = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: settings and recipe. The predictor is built again where it is used."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_predictor"}

    # ---- parts

    def _learn(self, images: Sequence[ImageSource], labels: NDArray[Any], *, known: NDArray[Any]) -> None:
        names = [self._name_of(label) for label in known]
        if len(set(names)) < len(names):
            raise SupportError(
                f"two labels have one class name: {', '.join(names)}. Give them different names."
            )
        engine = self._session()
        run = engine.few_shot(
            _support(engine, images, labels, list(known), names),
            method=self.method,
            config=self._config(),
            templates=self.templates,
            seed=self.random_state,
        )
        self._keep(run.result(), known)

    def _keep(self, result: AdaptResult, classes: NDArray[Any]) -> None:
        self.result_, self.recipe_, self.classes_ = result, result.recipe, classes
        self._predictor: Callable[[torch.Tensor], torch.Tensor] | None = None

    def _logits(self, X: Images) -> torch.Tensor:
        """Logits (N C) on the CPU, with columns in the order of `classes_`."""
        check_is_fitted(self, "recipe_")
        images = _check_images(X)
        engine = self._session()
        if getattr(self, "_predictor", None) is None:
            self._predictor = engine.predictor(self.recipe_)
        assert self._predictor is not None
        logits = self._predictor(engine.pixels(engine.read_images(images))).cpu()
        columns = [self.recipe_.classes.index(self._name_of(label)) for label in self.classes_]
        return logits[:, columns]

    def _name_of(self, label: object) -> str:
        """The class name that the model reads for a label."""
        given = self.class_names or {}
        if given and label not in given:
            raise SupportError(
                f"class_names has no name for the label '{label}'. Add it, or give none at all."
            )
        return str(given.get(label, str(label).replace("_", " ")))

    def _config(self) -> FewShotConfig:
        return FewShotConfig() if self.steps is None else FewShotConfig(steps=self.steps)

    def _session(self) -> Atlas:
        return _open_session(self.model, None if self.bank is None else str(self.bank), self.device)


@functools.lru_cache(maxsize=OPEN_MODELS)
def _open_session(model: str, bank: str | None, device: str | None) -> Atlas:
    """The session that all estimators of this process with this model share; nothing is kept on disk."""
    return open_atlas(model, bank=bank, device=device, cache=False)


def _support(
    engine: Atlas,
    images: Sequence[ImageSource],
    labels: NDArray[Any],
    classes: Sequence[Any],
    names: Sequence[str],
) -> Support:
    number = {label: index for index, label in enumerate(classes)}
    return Support(
        tuple(engine.read_images(images)), tuple(number[label] for label in labels.tolist()), tuple(names)
    )


def _check_pair(X: Images, y: Labels) -> tuple[list[ImageSource], NDArray[Any]]:
    """Images and labels, as many of the one as of the other."""
    if y is None:
        raise SupportError("this estimator requires y to be passed: one label per image. Pass fit(X, y).")
    images, labels = _check_images(X), np.asarray(y)
    if labels.ndim != 1 or len(labels) != len(images):
        raise SupportError(
            f"got {len(images)} images and labels of shape {labels.shape}. Give one label per image."
        )
    return images, labels


def _check_images(X: Images) -> list[ImageSource]:
    """The images as a list: a list or array of paths or images, or one array (N H W 3)."""
    if isinstance(X, (str, bytes, Path)):
        raise SupportError("X must be a list of images, but got one path. Pass [path].")
    if isinstance(X, np.ndarray) and X.dtype != object and X.dtype.kind not in "US" and X.ndim < 3:
        raise SupportError(
            f"X has shape {X.shape}, which are numbers and not images. Give paths, PIL images, or an array "
            "(N, height, width, 3)."
        )
    return [np.asarray(image) if isinstance(image, torch.Tensor) else image for image in X]
