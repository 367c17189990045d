"""A split tower gives the same features, keeps its parameter names, and leaves the whole tower alone."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from atlas_engine.clip.tower_split import CutPoint, cut_points, split_at, split_tower
from atlas_engine.errors import ConfigError
from tests.clip.towers import features_of, small_tower
from tests.tiny import tiny_images

KINDS = ("vit", "resnet", "efficientnet", "mobilenet", "tiny-vit")


@pytest.mark.parametrize("kind", KINDS)
def test_prefix_then_suffix_is_the_whole_tower_bit_for_bit_at_every_cut(kind):
    visual, images = small_tower(kind), tiny_images(3)
    wanted = features_of(visual, images)
    cuts = cut_points(visual)
    assert len(cuts) >= 3
    for cut in cuts:
        split = split_at(visual, cut)
        assert torch.equal(features_of(split.suffix, split.run_prefix(images)), wanted), cut


@pytest.mark.parametrize("kind", KINDS)
def test_the_suffix_has_the_names_and_the_tensors_of_the_whole(kind):
    visual = small_tower(kind)
    whole = dict(visual.named_parameters())
    for cut in cut_points(visual):
        split = split_at(visual, cut)
        own = dict(split.suffix.named_parameters())
        assert tuple(own) == split.names == tuple(name for name in whole if name in own)  # in the same order
        assert all(own[name].data_ptr() == whole[name].data_ptr() for name in own)
        assert sum(parameter.numel() for parameter in own.values()) == cut.numel
        assert cut.share == cut.numel / sum(parameter.numel() for parameter in whole.values())


@pytest.mark.parametrize("kind", KINDS)
def test_cuts_go_from_input_to_output_and_each_leaves_less(kind):
    sizes = [cut.numel for cut in cut_points(small_tower(kind))]
    assert all(more > less for more, less in itertools.pairwise(sizes))
    total = sum(parameter.numel() for parameter in small_tower(kind).parameters())
    assert sizes[0] < total  # the stem is in the prefix
    assert sizes[-1] > 0


def test_cuts_are_named_by_the_first_module_of_the_suffix():
    assert [cut.name for cut in cut_points(small_tower("vit"))] == [
        "transformer.resblocks.0",
        "transformer.resblocks.1",
        "ln_post",
    ]
    resnet = small_tower("resnet")
    assert [cut.name for cut in cut_points(resnet)][-2:] == ["layer4.0", "attnpool"]
    split = split_at(resnet, cut_points(resnet)[-1])
    assert all(name.startswith("attnpool.") for name in split.names)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.79, 0.95])
def test_the_latest_cut_that_leaves_enough_is_taken(share):
    for kind in KINDS:
        fitting = [cut for cut in cut_points(small_tower(kind)) if cut.share >= share]
        split = split_tower(small_tower(kind), share=share)
        assert split.cut == fitting[-1] if fitting else split is None


@pytest.mark.parametrize("kind", ["vit", "resnet", "efficientnet"])
def test_the_whole_tower_is_not_written_to(kind):
    visual, images = small_tower(kind), tiny_images(3)
    before = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    modules, wanted = list(visual.modules()), features_of(visual, images)
    split = split_tower(visual)
    activations = split.run_prefix(images)
    activations_before = activations.clone()
    for parameter in split.suffix.parameters():
        parameter.requires_grad_(True)
    split.suffix(activations).square().sum().backward()
    assert all(parameter.grad is None for parameter in visual.parameters())
    assert list(visual.modules()) == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in visual.state_dict().items())
    assert torch.equal(features_of(visual, images), wanted)
    assert torch.equal(activations, activations_before)  # no module of the suffix works in place on them


def test_both_parts_are_in_eval_mode_and_activations_carry_no_graph():
    split = split_tower(small_tower("resnet"))
    assert not any(module.training for module in [*split.suffix.modules(), *split.prefix.modules()])
    activations = split.run_prefix(tiny_images(2).requires_grad_())
    assert not activations.requires_grad
    assert not activations.is_inference()  # such a tensor could not be trained on


def test_a_tower_of_unknown_kind_is_not_split():
    class Other(type(small_tower("resnet"))):
        """A subclass could run its modules in another order."""

    unknown = small_tower("resnet").__class__.__new__(Other)
    unknown.__dict__.update(small_tower("resnet").__dict__)
    for visual in (nn.Linear(3, 2), unknown, small_tower("timm-vit")):
        assert cut_points(visual) == ()
        assert split_tower(visual) is None


def test_a_share_that_no_cut_leaves_gives_none_and_one_out_of_range_is_refused():
    assert split_tower(small_tower("vit"), share=1.0) is None
    for share in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match="out of range"):
            split_tower(small_tower("vit"), share=share)


def test_a_cut_of_another_tower_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"Did you mean 'layer4\.0'"):
        split_at(small_tower("resnet"), CutPoint("layer4.9", 1, 0.1))


def test_the_bundled_model_is_split_with_half_of_its_parameters_in_the_suffix(engine):
    visual, size = engine.backbone.visual, engine.backbone.preprocessing.size
    split = split_tower(visual)
    assert split.cut.name.startswith("trunk.blocks.")
    assert 0.5 <= split.cut.share < 0.75
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(features_of(split.suffix, split.run_prefix(images)), features_of(visual, images))
