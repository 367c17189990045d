"""The visual projection of a CLIP ViT moves, whatever head stands on the tower, and its λ is kept."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.adapt.trainable_part import TrainablePart
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.data.support import Support
from atlas_engine.recipe import Recipe
from tests.drawn import write_pictures
from tests.engines import tiny_engine
from tests.tiny import tiny_bank, tiny_head, tiny_images


@pytest.fixture(scope="module")
def bank():
    return tiny_bank(tiny_engine().backbone.visual, size=0.5)


@pytest.mark.parametrize("multi_level", [False, True])
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_loss_has_a_slope_in_the_coefficients_of_the_projection(bank, share, multi_level):
    backbone = tiny_engine().backbone
    part = TrainablePart(backbone, bank, share=share, multi_level=multi_level)
    encoder = ComposedEncoder(part.tower, part.composer())
    composition = encoder.at(encoder.composer.initial())
    features = composition.features(part.activations(tiny_images(4).sigmoid()))
    text, scale = part.zero_shot_head(tiny_head(), features.shape[1])
    cross_entropy(scale * features @ text.T, torch.arange(4)).backward()
    slope = composition.gradient()[:, part.composer().blocks.index("proj")]
    assert slope.abs().min() > 1e-6


@pytest.mark.parametrize("method", ["atlas", "atlas+text-probe", "atlas+tip", "paper"])
def test_its_coefficients_are_learned_and_kept_in_the_recipe(bank, method, tmp_path):
    engine = tiny_engine()
    support = Support.from_folder(write_pictures(tmp_path / "set", {"red": 2, "blue": 2}))
    config = FewShotConfig(steps=3, batch=4, views=1)
    result = engine.few_shot(support, method=method, bank=bank, config=config).result()
    path = tmp_path / "recipe.atlas.safetensors"
    result.recipe.save(path)
    coefficients = Recipe.load(path).coefficients
    at = coefficients.blocks.index("proj")
    assert coefficients.table[:, at].ne(0).any()
