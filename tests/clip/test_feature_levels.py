"""Penultimate features and pooled maps join the projected ones, and zero-shot logits stay the same."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from atlas_engine.clip.feature_levels import (
    FeatureStats,
    first_pooled_map,
    fit_feature_stats,
    matching_logit_scale,
    pad_text_embeddings,
    pooled_maps_tower,
    with_feature_levels,
)
from atlas_engine.clip.tower_split import cut_points, split_at, split_tower
from atlas_engine.errors import RecipeError
from atlas_engine.runtime import frozen_copy
from tests.clip.towers import small_tower
from tests.tiny import tiny_images

WITH_PENULTIMATE = ("vit", "efficientnet", "tiny-vit")
WITH_MAPS = ("efficientnet", "tiny-vit")


@torch.inference_mode()
def pooled_maps(visual, images):
    return pooled_maps_tower(visual)(images)


def random_text(classes, dim):
    return F.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(0)), dim=-1)


@pytest.mark.parametrize("kind", WITH_PENULTIMATE)
def test_penultimate_features_are_added_and_zero_shot_logits_stay(kind):
    visual, images = small_tower(kind), tiny_images(3)
    with torch.inference_mode():
        projected, joint = visual(images), with_feature_levels(visual)(images)
    text = random_text(5, projected.shape[1])
    width = joint.shape[1]
    assert width > projected.shape[1]
    assert torch.allclose(joint.norm(dim=-1), torch.ones(3), atol=1e-5)
    zero_shot = 20.0 * F.normalize(projected, dim=-1) @ text.T
    scale = matching_logit_scale(20.0, text, width)
    assert torch.allclose(scale * joint @ pad_text_embeddings(text, width).T, zero_shot, atol=1e-3)


@pytest.mark.parametrize("kind", WITH_MAPS)
def test_pooled_maps_are_added_and_zero_shot_logits_stay(kind):
    visual, images = small_tower(kind), tiny_images(5)
    feature_stats = fit_feature_stats(pooled_maps(visual, images))
    with torch.inference_mode():
        projected = visual(images)
        without_maps = with_feature_levels(visual)(images)
        joint = with_feature_levels(visual, feature_stats=feature_stats)(images)
    assert joint.shape[1] == without_maps.shape[1] + len(feature_stats.mean)
    assert torch.allclose(joint.norm(dim=-1), torch.ones(5), atol=1e-5)
    text = random_text(4, projected.shape[1])
    width = joint.shape[1]
    zero_shot = 20.0 * F.normalize(projected, dim=-1) @ text.T
    scale = matching_logit_scale(20.0, text, width, feature_stats=feature_stats)
    assert torch.allclose(scale * joint @ pad_text_embeddings(text, width).T, zero_shot, atol=1e-3)


@pytest.mark.parametrize("kind", WITH_PENULTIMATE)
def test_parameters_keep_their_names_and_the_tower_stays_as_it_is(kind):
    visual, images = small_tower(kind), tiny_images(2)
    with torch.inference_mode():
        before = visual(images)
        tower = with_feature_levels(visual)
        assert torch.equal(visual(images), before)
        assert torch.equal(frozen_copy(tower)(images), tower(images))
    assert dict(tower.named_parameters()).keys() == dict(visual.named_parameters()).keys()


def test_the_projection_of_a_vit_is_used_where_it_stands_in_the_tower():
    """z at another projection is z of the tower that has it, for both orders of norm and pooling."""
    images = tiny_images(3)
    for pooling in ({}, {"pool_type": "avg", "final_ln_after_pool": True}):
        visual = frozen_copy(small_tower("vit"))
        for name, value in pooling.items():
            setattr(visual, name, value)
        other = torch.randn(visual.proj.shape, generator=torch.Generator().manual_seed(1))
        moved = torch.func.functional_call(with_feature_levels(visual), {"proj": other}, (images,))
        without = frozen_copy(visual)
        without.proj = None
        penultimate = without(images)
        parts = F.normalize(penultimate @ other, dim=-1), 2.0 * F.normalize(penultimate, dim=-1)
        assert torch.allclose(moved, torch.cat(parts, dim=-1) / 5**0.5, atol=1e-6)  # rounding of float32


def test_a_tower_whose_projection_cannot_be_separated_stays_as_it_is():
    visual = small_tower("resnet")
    assert with_feature_levels(visual) is visual
    text = torch.eye(4)
    assert torch.equal(pad_text_embeddings(text, 4), text)
    assert matching_logit_scale(20.0, text, 4) == 20.0


@pytest.mark.parametrize("kind", WITH_MAPS)
def test_a_suffix_has_the_pooled_maps_of_the_whole_tower_wherever_it_is_split(kind):
    visual, images = small_tower(kind), tiny_images(4)
    feature_stats = fit_feature_stats(pooled_maps(visual, images))
    with torch.inference_mode():
        wanted = with_feature_levels(visual, feature_stats=feature_stats)(images)
        for share in (0.99, 0.6, 0.3, 0.01):
            split = split_tower(visual, share=share, include=first_pooled_map(visual))
            suffix = with_feature_levels(split.suffix, feature_stats=feature_stats)
            assert torch.allclose(suffix(split.run_prefix(images)), wanted, atol=1e-6)


def test_a_cut_behind_the_first_pooled_map_would_lose_it():
    visual, images = small_tower("efficientnet"), tiny_images(4)
    split = split_at(visual, cut_points(visual)[-1])
    with torch.inference_mode():
        lost = pooled_maps_tower(split.suffix)(split.run_prefix(images))
    wanted = pooled_maps(visual, images)
    assert lost.shape != wanted.shape or not torch.equal(lost, wanted)


def test_pooled_maps_are_means_then_maxima_of_the_last_two_stages():
    visual, images = small_tower("efficientnet"), tiny_images(3)
    maps = {}
    hooked = frozen_copy(visual)
    last_two = [f"trunk.blocks.{len(visual.trunk.blocks) - back}" for back in (2, 1)]
    for name in last_two:
        hooked.get_submodule(name).register_forward_hook(
            lambda _, __, output, name=name: maps.update({name: output})
        )
    with torch.inference_mode():
        hooked(images)
    wanted = [part for name in last_two for part in (maps[name].mean((2, 3)), maps[name].amax((2, 3)))]
    assert torch.allclose(pooled_maps(visual, images), torch.cat(wanted, dim=1))


def test_with_many_images_the_stats_are_their_mean_and_spread():
    draw = torch.Generator().manual_seed(0)
    pooled = 3.0 + torch.tensor([1.0, 2.0]) * torch.randn(20_000, 2, generator=draw)
    feature_stats = fit_feature_stats(pooled)
    assert torch.allclose(feature_stats.mean, torch.tensor([3.0, 3.0]), atol=0.05)
    assert torch.allclose(feature_stats.spread, torch.tensor([1.0, 2.0]), rtol=0.02)


def test_identical_images_still_have_features_of_length_one():
    visual, images = small_tower("efficientnet"), tiny_images(1).expand(3, -1, -1, -1)
    feature_stats = fit_feature_stats(pooled_maps(visual, images))
    with torch.inference_mode():
        joint = with_feature_levels(visual, feature_stats=feature_stats)(images)
    assert torch.isfinite(joint).all()
    assert torch.allclose(joint.norm(dim=-1), torch.ones(3), atol=1e-5)


def test_copies_of_a_tower_with_feature_levels_share_no_recorded_features():
    visual, images = small_tower("efficientnet"), tiny_images(4)
    tower = with_feature_levels(visual, feature_stats=fit_feature_stats(pooled_maps(visual, images)))
    other = frozen_copy(tower)
    with torch.inference_mode():
        wanted = tower(images)
        other(images.flip(0))
        assert torch.equal(tower(images), wanted)
        assert torch.equal(other(images), wanted)


def test_a_tower_of_tokens_has_no_pooled_maps():
    visual = small_tower("vit")
    assert first_pooled_map(visual) is None
    assert pooled_maps_tower(visual) is None


def test_stats_come_out_of_a_recipe_as_they_went_in_or_are_refused():
    feature_stats = FeatureStats(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 4.0]))
    read, rest = FeatureStats.from_tensors({**feature_stats.tensors, "bias": torch.zeros(2)})
    assert torch.equal(read.mean, feature_stats.mean)
    assert torch.equal(read.spread, feature_stats.spread)
    assert list(rest) == ["bias"]
    assert FeatureStats.from_tensors({"bias": torch.zeros(2)})[0] is None
    for broken in (
        {"usual.mean": feature_stats.mean},
        {"usual.mean": feature_stats.mean, "usual.spread": torch.ones(3)},
        {"usual.mean": feature_stats.mean, "usual.spread": torch.tensor([0.0, 1.0])},
        {"usual.mean": torch.tensor([torch.nan, 0.0]), "usual.spread": feature_stats.spread},
    ):
        with pytest.raises(RecipeError, match="usual"):
            FeatureStats.from_tensors(broken)


def test_stats_of_another_tower_are_refused():
    visual, images = small_tower("efficientnet"), tiny_images(2)
    with pytest.raises(RecipeError, match="this model's maps have"):
        with_feature_levels(visual, feature_stats=FeatureStats(torch.zeros(3), torch.ones(3)))(images)
