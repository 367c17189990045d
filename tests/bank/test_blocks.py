"""The block table: names and shapes in, layer and kind out."""

from __future__ import annotations

import pytest
import torch

from atlas_engine import runtime
from atlas_engine.bank import Block, block_table
from atlas_engine.errors import BankError


def _table(**shapes):
    return block_table((name.replace("__", "."), torch.empty(shape)) for name, shape in shapes.items())


def test_a_whole_clip_gives_the_table_of_its_image_tower(clip):
    whole, tower = block_table(clip.named_parameters()), block_table(clip.visual.named_parameters())
    assert whole == tower
    assert whole.fingerprint == tower.fingerprint
    assert not [name for name in whole.names if name.startswith(("visual.", "token_", "text_projection"))]


def test_a_text_tower_is_refused(clip):
    text = [(name, p) for name, p in clip.named_parameters() if not name.startswith("visual.")]
    with pytest.raises(BankError, match="text tower"):
        block_table(text)


def test_an_empty_tower_is_refused():
    with pytest.raises(BankError, match="no parameters"):
        block_table([])


def test_a_vit_is_numbered_from_stem_to_head(clip):
    table = block_table(clip.visual.named_parameters())
    found = {b.name: (b.layer, b.kind) for b in table}
    assert found["conv1.weight"] == (0, "conv")
    assert found["class_embedding"] == (0, "embedding")
    assert found["positional_embedding"] == (0, "embedding")
    assert found["ln_pre.bias"] == (0, "norm")
    assert found["transformer.resblocks.0.attn.in_proj_weight"] == (1, "matrix")
    assert found["transformer.resblocks.1.attn.in_proj_bias"] == (2, "bias")
    assert found["transformer.resblocks.1.ln_2.weight"] == (2, "norm")
    assert found["ln_post.weight"] == (3, "norm")
    assert found["proj"] == (3, "projection")


def test_a_resnet_counts_its_blocks_through_all_stages():
    table = _table(
        conv1__weight=(8, 3, 3, 3),
        bn1__weight=(8,),
        bn1__bias=(8,),
        layer1__0__conv1__weight=(8, 8, 1, 1),
        layer1__0__downsample__1__weight=(8,),
        layer1__1__conv1__weight=(8, 8, 1, 1),
        layer3__2__conv1__weight=(8, 8, 3, 3),
        attnpool__positional_embedding=(5, 8),
        attnpool__c_proj__weight=(4, 8),
        attnpool__c_proj__bias=(4,),
    )
    assert [b.layer for b in table] == [0, 0, 0, 1, 1, 2, 3, 4, 4, 4]
    assert [b.kind for b in table] == [
        *("conv", "norm", "norm", "conv", "norm", "conv", "conv", "embedding", "projection", "bias")
    ]


def test_timm_towers_are_numbered_too():
    table = _table(
        trunk__stem__conv__weight=(8, 3, 3, 3),
        trunk__stages__0__blocks__0__mlp__fc1__weight=(8, 8),
        trunk__stages__2__downsample__conv__weight=(8, 8, 1, 1),
        trunk__stages__2__blocks__0__attn__qkv__weight=(24, 8),
        trunk__stages__2__blocks__0__layer_scale__gamma=(8,),
        trunk__norm__weight=(8,),
        head__proj__weight=(4, 8),
    )
    assert [b.layer for b in table] == [0, 1, 2, 3, 3, 4, 4]
    assert table[4].kind == "scale"
    assert table[-1].kind == "projection"
    lite = _table(
        trunk__conv_stem__weight=(8, 3, 3, 3),
        trunk__blocks__3__1__conv_pw__weight=(8, 8, 1, 1),
        trunk__blocks__10__0__conv_pw__weight=(8, 8, 1, 1),
    )
    assert [b.layer for b in lite] == [0, 1, 2]


@pytest.mark.parametrize(("model", "blocks", "numbers"), [("ViT-B-32", 152, 87.85e6), ("RN50", 174, 38.3e6)])
def test_real_towers_have_the_blocks_the_paper_counts(model, blocks, numbers):
    runtime.ensure_torchvision()
    import open_clip

    with torch.device("meta"):
        tower = open_clip.create_model(model, pretrained=None, device="meta").visual
    table = block_table(tower.named_parameters())
    assert len(table) == blocks
    assert table.numel == pytest.approx(numbers, rel=0.01)
    assert not [name for name in table.names if "running" in name]


def test_a_table_is_a_sequence_and_offers_the_nearest_name(clip):
    table = block_table(clip.visual.named_parameters())
    assert table[table.index("proj")] == Block("proj", (192, 32), 3, "projection")
    assert len(table[:3]) == 3
    with pytest.raises(BankError, match=r"Did you mean 'proj'"):
        table.index("porj")


def test_the_fingerprint_sees_names_and_shapes():
    one, other, longer = _table(a=(2, 3)), _table(b=(2, 3)), _table(a=(3, 2))
    assert len({one.fingerprint, other.fingerprint, longer.fingerprint}) == 3
