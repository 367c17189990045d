"""`AtlasClassifier` behaves as scikit-learn expects: fit, predict, clone, pipelines, pickles."""

from __future__ import annotations

import io
import warnings

import joblib
import numpy as np
import pytest
from PIL import Image as PILImage
from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks

from atlas_engine import estimator
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.engine import Atlas
from atlas_engine.errors import SupportError
from atlas_engine.estimator import AtlasClassifier
from tests.drawn import square
from tests.engines import tiny_engine
from tests.tiny import tiny_bank

COLOURS = {"red": (220, 40, 40), "blue": (40, 60, 220)}


@pytest.fixture(autouse=True)
def _small_model(monkeypatch, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "estimator-bank.safetensors"
    if not path.exists():
        save_bank(tiny_bank(tiny_engine().backbone.visual), path)
    engine = Atlas(tiny_engine().backbone, bank_path=path)
    monkeypatch.setattr(estimator, "_open_session", lambda *_: engine)


@pytest.fixture(scope="module")
def images():
    arrays = [square(COLOURS[name], seed=seed, side=40) for seed in range(5) for name in ("red", "blue")]
    return arrays, ["red", "blue"] * 5


def fitted(images, **settings):
    return AtlasClassifier(**{"method": "text-probe", "steps": 4, **settings}).fit(*images)


def test_it_learns_from_arrays_paths_and_pil_images(images, tmp_path):
    arrays, labels = images
    pictures = [PILImage.fromarray(array) for array in arrays]
    paths = []
    for index, picture in enumerate(pictures):
        paths.append(tmp_path / f"{index}.png")
        picture.save(paths[-1])
    stacked = np.stack(arrays)
    probs = [fitted((X, labels)).predict_proba(X) for X in (arrays, pictures, paths, stacked)]
    for other in probs[1:]:
        np.testing.assert_allclose(probs[0], other, atol=1e-5)
    assert probs[0].shape == (10, 2)
    np.testing.assert_allclose(probs[0].sum(axis=1), 1)


def test_classes_are_sorted_and_columns_follow_them(images):
    classifier = fitted(images)
    assert classifier.classes_.tolist() == ["blue", "red"]
    assert classifier.score(*images) == 1.0
    best = classifier.classes_[classifier.predict_proba(images[0]).argmax(axis=1)]
    assert best.tolist() == classifier.predict(images[0]).tolist()


def test_labels_may_be_numbers_with_names_of_their_own(images):
    arrays, labels = images
    numbers = np.array([{"red": 7, "blue": 3}[label] for label in labels])
    classifier = fitted((arrays, numbers), class_names={3: "blue", 7: "red"})
    assert classifier.classes_.tolist() == [3, 7]
    assert classifier.recipe_.classes == ("blue", "red")
    assert classifier.predict(arrays).tolist() == numbers.tolist()


def test_auto_says_which_images_are_known(images):
    classifier = fitted(images, method="auto")
    known = classifier.is_known(images[0])
    assert known.dtype == bool
    assert known.all() or classifier.recipe_.calibration.reject_below is not None
    assert classifier.result_.advice is not None


def test_partial_fit_learns_on_and_takes_new_classes(images):
    arrays, labels = images
    classifier = AtlasClassifier(method="auto", steps=4).partial_fit(arrays, labels, classes=["red", "blue"])
    assert classifier.classes_.tolist() == ["blue", "red"]
    green = [square((20, 90, 30), seed=seed, side=40) for seed in range(3)]
    classifier.partial_fit([*green, *arrays[:2]], ["green"] * 3 + labels[:2])
    assert classifier.classes_.tolist() == ["blue", "green", "red"]
    assert classifier.recipe_.classes == ("blue", "red", "green")
    assert classifier.predict_proba(arrays).shape == (10, 3)
    assert classifier.predict(green).tolist().count("green") >= 2


def test_it_works_in_pipelines_and_cross_validation(images):
    arrays, labels = images
    turned = make_pipeline(
        FunctionTransformer(lambda X: [np.fliplr(x) for x in X]), AtlasClassifier(method="text-probe")
    )
    assert turned.fit(arrays, labels).score(arrays, labels) == 1.0
    scores = cross_val_score(AtlasClassifier(method="text-probe"), arrays, labels, cv=2)
    assert scores.shape == (2,)
    assert (scores > 0.5).all()


def test_joblib_keeps_settings_and_answers(images):
    classifier, file = fitted(images), io.BytesIO()
    before = classifier.predict_proba(images[0])
    joblib.dump(classifier, file)
    assert len(file.getvalue()) < 2**20  # the recipe, not the model
    file.seek(0)
    again = joblib.load(file)
    assert again.get_params() == classifier.get_params()
    np.testing.assert_array_equal(again.predict_proba(images[0]), before)


def test_a_clone_has_the_settings_and_is_not_fitted(images):
    copy = clone(fitted(images, random_state=5))
    assert copy.get_params()["random_state"] == 5
    with pytest.raises(NotFittedError, match="not fitted yet"):
        copy.predict(images[0])


@pytest.mark.parametrize(
    "name",
    [
        "check_estimator_cloneable",
        "check_estimator_tags_renamed",
        "check_valid_tag_types",
        "check_estimator_repr",
        "check_no_attributes_set_in_init",
        "check_parameters_default_constructible",
        "check_get_params_invariance",
        "check_set_params",
        "check_mixin_order",
    ],
)
def test_the_checks_of_scikit_learn_that_need_no_rows_of_numbers_pass(name):
    getattr(estimator_checks, name)("AtlasClassifier", AtlasClassifier())


def test_check_estimator_skips_the_rest_because_images_are_no_rows_of_numbers():
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        estimator_checks.check_estimator(AtlasClassifier())
    assert any(issubclass(one.category, SkipTestWarning) for one in seen)


@pytest.mark.parametrize(
    ("X", "y", "sentence"),
    [
        (np.zeros((4, 64)), [0, 1, 0, 1], "are numbers and not images"),
        ("cat.jpg", ["cat"], "got one path"),
        ([np.zeros((8, 8, 3), np.uint8)] * 2, ["a"], "one label per image"),
        ([np.zeros((8, 8, 3), np.uint8)] * 2, None, "requires y"),
        ([np.zeros((8, 8, 3), np.uint8)] * 2, ["a", "a"], "at least 2"),
        ([], [], "no images"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_it_unfitted(X, y, sentence):
    classifier = AtlasClassifier(method="text-probe")
    with pytest.raises(SupportError, match=sentence):
        classifier.fit(X, y)
    assert not hasattr(classifier, "recipe_")


def test_a_label_without_a_name_and_a_class_without_images_are_refused(images):
    with pytest.raises(SupportError, match="no name for the label 'red'"):
        fitted(images, class_names={"blue": "blau"})
    with pytest.raises(SupportError, match="show no 'green'"):
        AtlasClassifier().partial_fit(*images, classes=["red", "blue", "green"])
