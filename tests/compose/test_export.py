"""Exported weights: open_clip loads them by itself and gives exactly the composed features."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.nn.functional import normalize

from atlas_engine import runtime
from atlas_engine.compose.encoder import ComposedEncoder
from atlas_engine.compose.export import export
from atlas_engine.errors import BankError
from tests.tiny import TOWERS, tiny_clip, tiny_composer, tiny_encoder, tiny_images, tiny_lam


@pytest.mark.parametrize("tower", TOWERS)
def test_open_clip_loads_the_file_and_gives_the_same_features(tower, tmp_path):
    base, encoder = tiny_clip(tower), tiny_encoder(tower)
    lam = tiny_lam(encoder)
    export(tmp_path / "w.safetensors", state=base.state_dict(), theta=encoder.composer.compose(lam))
    runtime.ensure_torchvision()
    import open_clip

    fresh = copy.deepcopy(base)
    with torch.no_grad():
        for weights in fresh.parameters():
            weights.zero_()
    assert not open_clip.load_checkpoint(fresh, str(tmp_path / "w.safetensors")).missing_keys
    with torch.no_grad():
        wanted = encoder.at(lam).features(tiny_images())
        assert torch.equal(normalize(fresh.visual(tiny_images()), dim=-1), wanted)
    for name, weights in fresh.state_dict().items():
        if not name.startswith("visual."):
            assert torch.equal(weights, base.state_dict()[name])
    assert [path.name for path in tmp_path.iterdir()] == ["w.safetensors"]


def test_every_tensor_keeps_the_dtype_of_the_base(tmp_path):
    from safetensors.torch import load_file

    composer = tiny_encoder().composer
    half = {name: weights.bfloat16() for name, weights in tiny_clip().state_dict().items()}
    export(tmp_path / "w.safetensors", state=half, theta=composer.compose(composer.initial()))
    assert {weights.dtype for weights in load_file(tmp_path / "w.safetensors").values()} == {torch.bfloat16}


def test_weights_of_another_tower_are_refused_and_nothing_is_written(tmp_path):
    composer = tiny_composer(tiny_clip("resnet").visual)
    theta = composer.compose(composer.initial())
    with pytest.raises(BankError, match=r"no weights 'visual\.bn1\.weight'"):
        export(tmp_path / "w.safetensors", state=tiny_clip("vit").state_dict(), theta=theta)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_real_vit_b_32_goes_out_and_comes_back_through_create_model(tmp_path):
    runtime.ensure_torchvision()
    import open_clip

    torch.manual_seed(0)
    base = open_clip.create_model("ViT-B-32").eval()
    encoder = ComposedEncoder(base.visual, tiny_composer(base.visual, tasks=1))
    lam = tiny_lam(encoder)
    assert lam.shape == (1, 152)
    images = torch.randn(1, 3, 224, 224)
    export(tmp_path / "w.safetensors", state=base.state_dict(), theta=encoder.composer.compose(lam))
    loaded = open_clip.create_model("ViT-B-32", pretrained=str(tmp_path / "w.safetensors")).eval()
    with torch.no_grad():
        assert torch.equal(normalize(loaded.visual(images), dim=-1), encoder.at(lam).features(images))
