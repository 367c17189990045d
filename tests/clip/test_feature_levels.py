"""Wide towers see more and say the same."""

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
from tests.clip.test_tower_split import tower
from tests.tiny import tiny_images

WIDE = ("vit", "efficientnet", "tiny-vit")
DEEP = ("efficientnet", "tiny-vit")


@pytest.mark.parametrize("kind", WIDE)
def test_words_are_compared_with_as_before_and_more_is_seen(kind):
    visual, images = tower(kind), tiny_images(3)
    with torch.inference_mode():
        said, wide = visual(images), with_feature_levels(visual)(images)
    text = F.normalize(torch.randn(5, said.shape[1], generator=torch.Generator().manual_seed(0)), dim=-1)
    width = wide.shape[1]
    assert width > said.shape[1]
    assert torch.allclose(wide.norm(dim=-1), torch.ones(3), atol=1e-5)
    plain = 20.0 * F.normalize(said, dim=-1) @ text.T
    scale = matching_logit_scale(20.0, text, width)
    assert torch.allclose(scale * wide @ pad_text_embeddings(text, width).T, plain, atol=1e-3)


@pytest.mark.parametrize("kind", WIDE)
def test_parameters_keep_their_names_and_the_tower_stays_as_it_is(kind):
    visual, images = tower(kind), tiny_images(2)
    with torch.inference_mode():
        before = visual(images)
        wide = with_feature_levels(visual)
        assert torch.equal(visual(images), before)
        assert torch.equal(frozen_copy(wide)(images), wide(images))
    assert {name for name, _ in wide.named_parameters()} | {"proj"} >= dict(visual.named_parameters()).keys()


def test_a_tower_that_cannot_be_told_apart_stays_as_it_is():
    visual = tower("resnet")
    assert with_feature_levels(visual) is visual
    text = torch.eye(4)
    assert torch.equal(pad_text_embeddings(text, 4), text)
    assert matching_logit_scale(20.0, text, 4) == 20.0


@torch.inference_mode()
def pooled(visual, images):
    return pooled_maps_tower(visual)(images)


@pytest.mark.parametrize("kind", DEEP)
def test_maps_add_to_what_is_seen_and_words_are_compared_with_as_before(kind):
    visual, images = tower(kind), tiny_images(5)
    feature_stats = fit_feature_stats(pooled(visual, images))
    with torch.inference_mode():
        said, deep = visual(images), with_feature_levels(visual, feature_stats=feature_stats)(images)
        seen = with_feature_levels(visual)(images)
    assert deep.shape[1] == seen.shape[1] + len(feature_stats.mean)
    assert torch.allclose(deep.norm(dim=-1), torch.ones(5), atol=1e-5)
    text = F.normalize(torch.randn(4, said.shape[1], generator=torch.Generator().manual_seed(0)), dim=-1)
    width = deep.shape[1]
    plain = 20.0 * F.normalize(said, dim=-1) @ text.T
    scale = matching_logit_scale(20.0, text, width, feature_stats=feature_stats)
    assert torch.allclose(scale * deep @ pad_text_embeddings(text, width).T, plain, atol=1e-3)


@pytest.mark.parametrize("kind", DEEP)
def test_maps_are_those_of_the_whole_tower_whatever_part_of_it_moves(kind):
    visual, images = tower(kind), tiny_images(4)
    feature_stats = fit_feature_stats(pooled(visual, images))
    with torch.inference_mode():
        wanted = with_feature_levels(visual, feature_stats=feature_stats)(images)
        for share in (0.99, 0.6, 0.3, 0.01):
            late = split_tower(visual, share=share, until=first_pooled_map(visual))
            deep = with_feature_levels(late.tower, feature_stats=feature_stats)(late.early(images))
            assert torch.allclose(deep, wanted, atol=1e-6)


def test_a_cut_behind_the_first_map_would_lose_it():
    visual, images = tower("efficientnet"), tiny_images(4)
    late = split_at(visual, cut_points(visual)[-1])
    with torch.inference_mode():
        lost = pooled_maps_tower(late.tower)(late.early(images))
    assert lost.shape != pooled(visual, images).shape or not torch.equal(lost, pooled(visual, images))


def test_pooled_maps_are_means_then_maxima_of_the_last_two_stages():
    visual, images = tower("efficientnet"), tiny_images(3)
    maps = {}
    watched = frozen_copy(visual)
    last_two = [f"trunk.blocks.{len(visual.trunk.blocks) - back}" for back in (2, 1)]
    for name in last_two:
        watched.get_submodule(name).register_forward_hook(
            lambda _, __, out, name=name: maps.update({name: out})
        )
    with torch.inference_mode():
        watched(images)
    wanted = [part for name in last_two for part in (maps[name].mean((2, 3)), maps[name].amax((2, 3)))]
    assert torch.allclose(pooled(visual, images), torch.cat(wanted, dim=1))


def test_what_is_usual_is_mean_and_spread_where_pictures_are_many():
    draw = torch.Generator().manual_seed(0)
    pictures = 3.0 + torch.tensor([1.0, 2.0]) * torch.randn(20_000, 2, generator=draw)
    feature_stats = fit_feature_stats(pictures)
    assert torch.allclose(feature_stats.mean, torch.tensor([3.0, 3.0]), atol=0.05)
    assert torch.allclose(feature_stats.spread, torch.tensor([1.0, 2.0]), rtol=0.02)


def test_pictures_that_are_all_alike_still_have_features_of_length_one():
    visual, images = tower("efficientnet"), tiny_images(1).expand(3, -1, -1, -1)
    feature_stats = fit_feature_stats(pooled(visual, images))
    with torch.inference_mode():
        deep = with_feature_levels(visual, feature_stats=feature_stats)(images)
    assert torch.isfinite(deep).all()
    assert torch.allclose(deep.norm(dim=-1), torch.ones(3), atol=1e-5)


def test_twins_of_a_wide_tower_do_not_meet():
    visual, images = tower("efficientnet"), tiny_images(4)
    wide = with_feature_levels(visual, feature_stats=fit_feature_stats(pooled(visual, images)))
    other = frozen_copy(wide)
    with torch.inference_mode():
        wanted = wide(images)
        other(images.flip(0))
        assert torch.equal(wide(images), wanted)
        assert torch.equal(other(images), wanted)


def test_a_tower_of_tokens_has_no_maps_and_stays_wide():
    visual = tower("vit")
    assert first_pooled_map(visual) is None
    assert pooled_maps_tower(visual) is None


def test_what_is_usual_comes_out_of_a_recipe_as_it_went_in_or_is_refused():
    feature_stats = FeatureStats(torch.tensor([1.0, 2.0]), torch.tensor([0.5, 4.0]))
    taken, rest = FeatureStats.taken_from({**feature_stats.tensors, "bias": torch.zeros(2)})
    assert torch.equal(taken.mean, feature_stats.mean)
    assert torch.equal(taken.spread, feature_stats.spread)
    assert list(rest) == ["bias"]
    assert FeatureStats.taken_from({"bias": torch.zeros(2)})[0] is None
    for broken in (
        {"usual.mean": feature_stats.mean},
        {"usual.mean": feature_stats.mean, "usual.spread": torch.ones(3)},
        {"usual.mean": feature_stats.mean, "usual.spread": torch.tensor([0.0, 1.0])},
        {"usual.mean": torch.tensor([torch.nan, 0.0]), "usual.spread": feature_stats.spread},
    ):
        with pytest.raises(RecipeError, match="usual"):
            FeatureStats.taken_from(broken)


def test_what_is_usual_for_another_tower_is_refused():
    visual, images = tower("efficientnet"), tiny_images(2)
    with pytest.raises(RecipeError, match="this model's maps have"):
        with_feature_levels(visual, feature_stats=FeatureStats(torch.zeros(3), torch.ones(3)))(images)
