"""The session object: predictions, features, caches."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

import atlas_engine as atlas
from atlas_engine.cache import Cache
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.engine import Atlas
from atlas_engine.errors import ImageError, SupportError
from atlas_engine.runtime import generator
from tests.drawn import noise_picture
from tests.engines import tiny_engine
from tests.task_vectors import engine_with_task_vectors

CLASSES = ["cat", "dog", "house"]


def test_probabilities_are_the_softmax_of_scaled_cosines(engine):
    pictures = [noise_picture(seed) for seed in range(3)]
    predictions = engine.predict(pictures, CLASSES)
    cosines = engine.features(pictures) @ engine.head(CLASSES).T
    expected = torch.softmax(engine.backbone.logit_scale * cosines, dim=1)
    torch.testing.assert_close(predictions.probs, expected)
    torch.testing.assert_close(predictions.probs.sum(dim=1), torch.ones(3))


def test_features_and_heads_have_unit_length(engine):
    for units in (engine.features([noise_picture(0)]), engine.head(CLASSES)):
        torch.testing.assert_close(units.norm(dim=1), torch.ones(len(units)))


def test_the_order_of_classes_only_permutes_the_columns(engine):
    pictures = [noise_picture(1)]
    forward = engine.predict(pictures, CLASSES).probs
    backward = engine.predict(pictures, CLASSES[::-1]).probs
    torch.testing.assert_close(forward, backward.flip(1))


def test_a_picture_answers_the_same_alone_and_in_a_batch(engine):
    pictures = [noise_picture(seed) for seed in range(5)]
    together = engine.features(pictures)
    alone = torch.cat([engine.features([picture]) for picture in pictures])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)  # batches sum in another order


def test_paths_bytes_arrays_and_pictures_of_one_image_answer_alike(engine, examples):
    path = examples / "cat.jpg"
    picture = atlas.read_image(path)
    probs = engine.predict([path, path.read_bytes(), picture, np.array(picture.pixels)], CLASSES).probs
    assert torch.equal(probs, probs[:1].expand_as(probs))


def test_a_warm_cache_gives_back_the_same_numbers_without_the_tower(engine, tmp_path):
    pictures = [noise_picture(seed) for seed in range(3)]
    with Cache(tmp_path) as cache:
        first = Atlas(engine.backbone, cache=cache).predict(pictures, CLASSES)
        assert len(cache) == len(pictures) + len(CLASSES)
        deaf = copy.copy(engine.backbone)
        object.__setattr__(deaf, "encode_text", _fail)  # a cached answer asks neither tower
        warm = Atlas(deaf, cache=cache)
        assert torch.equal(warm.predict(pictures, CLASSES).probs, first.probs)


def test_features_in_another_precision_are_cached_apart(tmp_path, monkeypatch):
    engine, pictures, found = tiny_engine(), [noise_picture(seed) for seed in range(3)], []
    with Cache(tmp_path) as cache:
        session = Atlas(engine.backbone, cache=cache)
        for word in ("off", "bfloat16", "off"):
            monkeypatch.setenv("ATLAS_AUTOCAST", word)
            found.append(session.features(pictures))
        assert len(cache) == 2 * len(pictures)
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert (found[0] * found[1]).sum(1).min() > 0.999  # of length 1, from products with 8 bits


def test_another_template_set_is_another_head(engine):
    assert not torch.equal(engine.head(CLASSES), engine.head(CLASSES, templates="a drawing of a {}"))


def test_no_images_and_one_class_are_refused_in_words(engine):
    with pytest.raises(SupportError, match="got no images"):
        engine.predict([], CLASSES)
    with pytest.raises(SupportError, match="at least 2 are needed"):
        engine.predict([noise_picture(0)], ["cat"])
    with pytest.raises(SupportError, match=r"Pass \[image\]"):
        engine.predict("cat.jpg", CLASSES)


def test_a_file_that_is_no_image_is_named(engine, tmp_path):
    path = tmp_path / "letter.jpg"
    path.write_text("Dear Sir")
    with pytest.raises(ImageError, match=r"letter\.jpg"):
        engine.predict([path], CLASSES)


def test_predictions_rank_and_print(engine, examples):
    predictions = engine.predict([examples / "cat.jpg"], CLASSES)
    (ranked,) = predictions.top(2)
    assert ranked[0].label == predictions.labels[0]
    assert ranked[0].prob >= ranked[1].prob
    assert str(predictions).startswith("cat.jpg  cat ")
    assert repr(predictions) == "Predictions(1 images × 3 classes)"


def test_a_one_shot_does_it_all(examples):
    assert atlas.predict([examples / "cat.jpg"], CLASSES).labels == ("cat",)


def _fail(_texts):
    raise AssertionError("the text tower was asked")


def test_predicting_neither_hashes_the_whole_tower_nor_looks_for_a_bank(engine, tmp_path, monkeypatch):
    def refuse(*_args):
        raise AssertionError("a prediction needs neither")

    monkeypatch.setattr("atlas_engine.engine.fingerprint", refuse)
    with Cache(tmp_path) as cache:
        session = Atlas(engine.backbone, bank_path=refuse, cache=cache)
        first = session.predict([noise_picture(0)], CLASSES)
        assert torch.equal(session.predict([noise_picture(0)], CLASSES).probs, first.probs)


def test_a_recipe_is_used_many_times_and_the_tower_is_hashed_once_for_each_kind(engine, monkeypatch):
    from atlas_engine.bank.vector import fingerprint

    hashed = []
    monkeypatch.setattr(
        "atlas_engine.engine.fingerprint", lambda weights: hashed.append(len(weights)) or fingerprint(weights)
    )
    session = Atlas(engine.backbone, bank_path=engine.bank_path)
    recipe = atlas.Recipe.load("assets/examples/apples/recipe.atlas.safetensors")
    for strength in (0.0, 0.5, 1.0):
        session.adapted(atlas.scale_recipe(recipe, strength))
    assert len(hashed) == 2, "with its buffers, as recipes know it, and without, as banks do"


def test_weights_that_were_trained_further_are_other_weights_to_the_cache(engine):
    other = copy.deepcopy(engine.backbone.visual)
    with torch.no_grad():
        next(iter(other.parameters())).mul_(1.001)
    changed = Atlas(dataclasses.replace(engine.backbone, visual=other))
    assert changed.weights_id != engine.weights_id


def test_a_shipped_recipe_from_before_rows_could_be_split_composes_as_it_was_written(engine):
    """Its layout has no `split_by`: the numbers of a block, one by one, by the formula written out here."""
    recipe = atlas.Recipe.load("assets/examples/melons/recipe.atlas.safetensors")
    layout = recipe.coefficients.layout
    assert (layout.partitions, layout.split_by) == (20, "entries")
    tower, base = (
        dict(engine.adapted(recipe).named_parameters()),
        dict(engine.backbone.visual.named_parameters()),
    )
    moved = recipe.coefficients.table.abs().amax(dim=(0, 2)).nonzero().flatten().tolist()
    for m in (moved[0], moved[len(moved) // 2], moved[-1]):
        block = recipe.coefficients.blocks[m]
        draw = torch.Generator().manual_seed(layout.seed * 1_000_003 + block.numel)
        part = (torch.arange(block.numel) % 20)[torch.randperm(block.numel, generator=draw)]
        tau = engine.bank.vectors_of(block)[[engine.bank.tasks.index(t) for t in recipe.coefficients.tasks]]
        wanted = base[block.name].flatten() + (recipe.coefficients.table[:, m][:, part] * tau).sum(0)
        # an ulp of the base, and float32 sums in another order
        torch.testing.assert_close(tower[block.name].flatten(), wanted, rtol=1e-5, atol=1e-6)


def test_a_recipe_split_by_rows_answers_the_same_after_the_disk_and_otherwise_than_by_entries(tmp_path):
    session = engine_with_task_vectors(tmp_path)
    bank, pixels = session.bank, stack_noise(4)
    logits = {}
    for split_by in ("rows", "entries"):
        layout = Layout(partitions=3, seed=2, split_by=split_by)
        lam = 0.5 * torch.randn(layout.shape(len(bank), bank.blocks), generator=generator(0))
        recipe = atlas.Recipe(
            Coefficients(lam, layout, bank.tasks, bank.blocks),
            model="tiny",
            model_fingerprint=session.fingerprint,
            bank_fingerprint=bank.fingerprint,
            classes=("otter", "seal"),
        )
        recipe.save(tmp_path / split_by)
        logits[split_by] = session.logits(recipe, pixels)
        assert torch.equal(session.logits(atlas.Recipe.load(tmp_path / split_by), pixels), logits[split_by])
    assert not torch.allclose(logits["rows"], logits["entries"], atol=1e-3)


def stack_noise(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 3, 32, 32), dtype=torch.uint8, generator=generator(1))
