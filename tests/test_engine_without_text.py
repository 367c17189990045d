"""Sessions with a model that has no text tower: given class embeddings, prototypes, honest verdicts."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import normalize

from atlas_engine.adapt.methods import ZERO_SHOT
from atlas_engine.adapt.settings import FewShotConfig, FewShotRunSettings
from atlas_engine.adapt.verdict import PROTOTYPES, held_out_folds
from atlas_engine.data.support import Support
from atlas_engine.errors import ModelError, RecipeError
from atlas_engine.heads.base import LabelledFeatures, class_prototypes
from atlas_engine.recipe import CLASS_EMBEDDINGS, Recipe
from tests.drawn import noise_picture, write_pictures
from tests.tiny import tiny_bank
from tests.visual_towers import small_engine, small_visual

SHORT = FewShotConfig(steps=2, batch=4)


@pytest.fixture(scope="module")
def blind(tmp_path_factory):
    """A session with a small image tower that reads no class names."""
    return small_engine(tmp_path_factory.mktemp("tower") / "t.safetensors")


@pytest.fixture(scope="module")
def bank():
    return tiny_bank(small_visual())


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("blind") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


def noise_support(counts: tuple[int, ...]) -> Support:
    """Images without anything to learn."""
    labels = tuple(label for label, count in enumerate(counts) for _ in range(count))
    images = tuple(noise_picture(seed) for seed in range(len(labels)))
    return Support(images, labels, tuple(f"class {label}" for label in range(len(counts))))


def test_class_names_cannot_be_read_and_the_error_says_what_to_do(blind, bank, colours):
    words = r"has no text tower.*class_embeddings=….*let few_shot make prototypes"
    with pytest.raises(ModelError, match=words):
        blind.predict(colours.images, ["red", "blue"])
    with pytest.raises(ModelError, match=words):
        blind.test_time(colours.images, ["red", "blue"], bank=bank).result()


def test_given_embeddings_are_the_head(colours, tmp_path):
    given = {"red": torch.eye(16)[0] * 3, "blue": torch.eye(16)[1]}
    engine = small_engine(tmp_path / "t.safetensors", class_embeddings=given)
    assert torch.equal(engine.head(["blue", "red"]), torch.eye(16)[[1, 0]]), "of length 1"
    features = engine.features(colours.images)
    wanted = (100.0 * features[:, :2]).softmax(dim=1)
    torch.testing.assert_close(engine.predict(colours.images, ["red", "blue"]).probs, wanted)
    with pytest.raises(ModelError, match="class embedding 'green'"):
        engine.head(["red", "green"])


@pytest.mark.parametrize("vector", [torch.zeros(16), torch.ones(3), torch.full((16,), torch.nan)])
def test_an_embedding_of_another_space_is_refused(vector, tmp_path):
    with pytest.raises(ModelError, match="needs 16 finite numbers"):
        small_engine(tmp_path / "t.safetensors", class_embeddings={"red": vector})


def test_a_prototype_is_the_mean_of_its_class(blind, colours):
    features = blind.features(colours.images)
    wanted = [
        normalize(features[torch.tensor(colours.labels) == label].mean(dim=0), dim=0) for label in (0, 1)
    ]
    torch.testing.assert_close(blind.starting_head(colours), torch.stack(wanted))


@pytest.mark.parametrize("method", ["auto", "zero-shot", "atlas", "paper", "tip", "lpp", "atlas+text-probe"])
def test_a_recipe_holds_the_prototypes_and_answers_alike_after_saving(method, blind, bank, colours, tmp_path):
    result = blind.few_shot(colours, method=method, bank=bank, config=SHORT).result()
    torch.testing.assert_close(result.recipe.class_embeddings, blind.starting_head(colours))
    result.recipe.save(tmp_path / "r.atlas.safetensors")
    loaded = Recipe.load(tmp_path / "r.atlas.safetensors")
    pixels = blind.pixels(colours.images)
    assert torch.equal(
        blind.logits(loaded, pixels, bank=bank), blind.logits(result.recipe, pixels, bank=bank)
    )
    compared = blind.compare(colours.images, loaded, bank=bank)
    assert compared.adapted.probs.shape == (8, 2)


def test_embeddings_of_another_size_in_a_recipe_are_refused(blind, bank, colours):
    recipe = blind.few_shot(colours, method="zero-shot", bank=bank).result().recipe
    other = Recipe(
        recipe.coefficients,
        model=recipe.model,
        model_fingerprint=recipe.model_fingerprint,
        bank_fingerprint=recipe.bank_fingerprint,
        classes=recipe.classes,
        config=recipe.config,
        head={CLASS_EMBEDDINGS: torch.zeros(3, 16)},
    )
    with pytest.raises(RecipeError, match=r"\(3, 16\), but the model needs \(2, 16\)"):
        blind.predictor(other, bank=bank)


def test_held_out_images_are_measured_with_prototypes_that_have_not_seen_them(blind, bank):
    support = noise_support((6, 6))
    result = blind.few_shot(support, bank=bank, config=SHORT).result()
    # by hand: the prototypes of the other folds
    features, labels = blind.features(support.images), torch.tensor(support.labels)
    head = class_prototypes(features, labels, 2)
    images = LabelledFeatures(features, labels, head, logit_scale=100.0)
    folds = held_out_folds(images, folds=FewShotRunSettings().folds, every_class=True)
    right = 0
    for fold in range(int(folds.max()) + 1):
        held = folds == fold
        own = class_prototypes(features, labels.masked_fill(held, -1), 2)
        right += int(((features[held] @ own.T).argmax(dim=1) == labels[held]).sum())
    (start,) = [one for one in result.estimates if one.method == ZERO_SHOT]
    assert (start.accuracy, start.images) == (right / 12, 12)
    seen = int(((features @ head.T).argmax(dim=1) == labels).sum())
    assert right < seen, "prototypes look better on images that they are made of"
    assert PROTOTYPES in result.verdict.sentence
    assert "zero-shot" not in result.verdict.sentence.lower()


def test_one_image_per_class_gives_no_number_and_says_so(blind, bank):
    result = blind.few_shot(noise_support((1, 1, 1)), bank=bank, config=SHORT).result()
    assert (result.estimates, result.verdict.helped) == ((), None)
    assert "whether adapting helps is not known" in result.verdict.sentence


def test_every_fold_leaves_an_image_of_every_class(blind):
    same = noise_picture(0)
    support = Support((same, same, noise_picture(1), noise_picture(2)), (0, 0, 1, 1), ("twice", "other"))
    features, labels = blind.features(support.images), torch.tensor(support.labels)
    images = LabelledFeatures(features, labels, class_prototypes(features, labels, 2), logit_scale=100.0)
    assert held_out_folds(images, folds=4, every_class=True)[:2].tolist() == [-1, -1], (
        "duplicates of one fold"
    )
