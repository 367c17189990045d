"""A tower cut in two gives the same features, keeps its names, and leaves the whole one alone."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
from torch import nn

from atlas_engine import runtime
from atlas_engine.clip.tower_split import CutPoint, cut_points, split_at, split_tower
from atlas_engine.errors import ConfigError
from tests.tiny import tiny_clip, tiny_images

TOWERS = ("vit", "resnet", "efficientnet", "mobilenet", "tiny-vit")
_TRUNKS = {  # small ones of those that timm names
    "efficientnet": "test_efficientnet",
    "mobilenet": "mobilenetv3_small_050",
    "tiny-vit": "tiny_vit_5m_224",
    "timm-vit": "test_vit",
}


@functools.cache
def tower(kind):
    """A small image tower of a kind, in eval mode. Shared between tests: only read it."""
    if kind not in _TRUNKS:
        return tiny_clip(kind).visual
    runtime.ensure_torchvision()
    from open_clip.timm_model import TimmModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        pool = "" if kind == "timm-vit" else "avg"
        proj = "" if kind == "mobilenet" else "linear"  # its features are wider than open_clip takes them for
        return TimmModel(_TRUNKS[kind], embed_dim=16, pool=pool, proj=proj).eval()


@torch.no_grad()
def features(module, images):
    return module(images)


@pytest.mark.parametrize("kind", TOWERS)
def test_early_then_late_is_the_whole_tower_bit_for_bit_at_every_cut(kind):
    visual, images = tower(kind), tiny_images(3)
    wanted = features(visual, images)
    places = cut_points(visual)
    assert len(places) >= 3
    for cut in places:
        late = split_at(visual, cut)
        assert torch.equal(features(late.tower, late.early(images)), wanted), cut


@pytest.mark.parametrize("kind", TOWERS)
def test_the_late_part_has_the_names_and_the_tensors_of_the_whole(kind):
    visual = tower(kind)
    whole = dict(visual.named_parameters())
    for cut in cut_points(visual):
        late = split_at(visual, cut)
        own = dict(late.tower.named_parameters())
        assert tuple(own) == late.names == tuple(name for name in whole if name in own)  # in the same order
        assert all(own[name].data_ptr() == whole[name].data_ptr() for name in own)
        assert sum(parameter.numel() for parameter in own.values()) == cut.numel
        assert cut.share == cut.numel / sum(parameter.numel() for parameter in whole.values())


@pytest.mark.parametrize("kind", TOWERS)
def test_cuts_go_from_input_to_output_and_each_leaves_less(kind):
    sizes = [cut.numel for cut in cut_points(tower(kind))]
    assert all(more > less for more, less in itertools.pairwise(sizes))
    assert sizes[0] < sum(parameter.numel() for parameter in tower(kind).parameters())  # the stem is early
    assert sizes[-1] > 0


def test_cuts_are_named_by_the_first_late_module():
    assert [cut.name for cut in cut_points(tower("vit"))] == [
        "transformer.resblocks.0",
        "transformer.resblocks.1",
        "ln_post",
    ]
    assert [cut.name for cut in cut_points(tower("resnet"))][-2:] == ["layer4.0", "attnpool"]
    late = split_at(tower("resnet"), cut_points(tower("resnet"))[-1])
    assert all(name.startswith("attnpool.") for name in late.names)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5, 0.79, 0.95])
def test_the_latest_cut_that_leaves_enough_is_taken(share):
    for kind in TOWERS:
        fitting = [cut for cut in cut_points(tower(kind)) if cut.share >= share]
        late = split_tower(tower(kind), share=share)
        assert late.cut == fitting[-1] if fitting else late is None


@pytest.mark.parametrize("kind", ["vit", "resnet", "efficientnet"])
def test_the_whole_tower_is_not_written_to(kind):
    visual, images = tower(kind), tiny_images(3)
    before = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    modules, wanted = list(visual.modules()), features(visual, images)
    late = split_tower(visual)
    kept = late.early(images)
    kept_before = kept.clone()
    for parameter in late.tower.parameters():
        parameter.requires_grad_(True)
    late.tower(kept).square().sum().backward()
    assert all(parameter.grad is None for parameter in visual.parameters())
    assert list(visual.modules()) == modules
    assert all(torch.equal(tensor, before[name]) for name, tensor in visual.state_dict().items())
    assert torch.equal(features(visual, images), wanted)
    assert torch.equal(kept, kept_before)  # no module works in place on what is kept


def test_both_parts_are_in_eval_mode_and_activations_carry_no_graph():
    late = split_tower(tower("resnet"))
    assert not any(module.training for module in [*late.tower.modules(), *late.front.modules()])
    kept = late.early(tiny_images(2).requires_grad_())
    assert not kept.requires_grad
    assert not kept.is_inference()  # such a tensor could not be trained on


def test_a_tower_of_unknown_kind_is_not_cut():
    class Other(type(tower("resnet"))):
        """One that could run its modules in another order."""

    unknown = tower("resnet").__class__.__new__(Other)
    unknown.__dict__.update(tower("resnet").__dict__)
    for visual in (nn.Linear(3, 2), unknown, tower("timm-vit")):
        assert cut_points(visual) == ()
        assert split_tower(visual) is None


def test_a_share_that_no_cut_leaves_gives_none_and_one_out_of_range_is_refused():
    assert split_tower(tower("vit"), share=1.0) is None
    for share in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match="out of range"):
            split_tower(tower("vit"), share=share)


def test_a_cut_of_another_tower_is_met_with_the_nearest():
    with pytest.raises(ConfigError, match=r"Did you mean 'layer4\.0'"):
        split_at(tower("resnet"), CutPoint("layer4.9", 1, 0.1))


def test_the_bundled_model_is_cut_where_half_of_its_weights_are_late(engine):
    visual, size = engine.backbone.visual, engine.backbone.preprocessing.size
    late = split_tower(visual)
    assert late.cut.name.startswith("trunk.blocks.")
    assert 0.5 <= late.cut.share < 0.75
    images = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    assert torch.equal(features(late.tower, late.early(images)), features(visual, images))
