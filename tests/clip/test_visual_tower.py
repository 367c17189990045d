"""An image tower without a text tower: it opens at any size, reads no class names, and is not offered."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.func import functional_call
from torch.nn.functional import cross_entropy, normalize

from atlas_engine import runtime
from atlas_engine.clip.models import open_backbone
from atlas_engine.clip.visual_tower import FILE_VARIABLE, NAME, is_visual_tower, tower_path
from atlas_engine.compose.encoder import ComposedEncoder, cosine_logits
from atlas_engine.compose.export import export
from atlas_engine.errors import ModelError
from atlas_engine.library import available_models
from tests.tiny import tiny_bank, tiny_composer, tiny_lam
from tests.visual_towers import CPU, real_tower_name, small_visual, write_small_tower


def noise(count: int, size: int) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_a_file_opens_as_a_backbone_without_a_text_tower(tmp_path):
    backbone = open_backbone(write_small_tower(tmp_path / "t.safetensors"), device=CPU)
    assert (backbone.name, backbone.dim, backbone.preprocessing.size) == (NAME, 16, 32)
    assert (backbone.encode_text, backbone.activation, backbone.logit_scale) == (None, "quick_gelu", 100.0)
    assert not any(weights.requires_grad for weights in backbone.visual.parameters())
    images = backbone.as_input(noise(2, 32))
    with torch.no_grad():
        assert torch.equal(backbone.visual(images), small_visual()(images))


def test_the_tower_is_found_by_its_name_where_it_was_fetched(tmp_path, monkeypatch):
    write_small_tower(tmp_path / "t.safetensors")
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "t.safetensors"))
    assert open_backbone(NAME, device=CPU).preprocessing.size == 32
    monkeypatch.delenv(FILE_VARIABLE)
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "empty"))
    assert tower_path() == tmp_path / "empty" / "models" / f"{NAME}.safetensors"
    with pytest.raises(ModelError, match=f"Run `atlas model fetch {NAME}`"):
        open_backbone(NAME, device=CPU)


def test_another_size_interpolates_the_position_embeddings_and_nothing_else(tmp_path):
    file = write_small_tower(tmp_path / "t.safetensors").partition("@")[2]
    backbone = open_backbone(f"{NAME}-48@{file}", device=CPU)
    assert (backbone.name, backbone.preprocessing.size) == (f"{NAME}-48", 48)
    with torch.no_grad():
        assert backbone.visual(noise(2, 48)).shape == (2, 16)
    trained, resized = small_visual().state_dict(), backbone.visual.state_dict()
    same = {name for name in trained if torch.equal(trained[name], resized[name])}
    assert trained.keys() - same == {"positional_embedding"}
    table = resized["positional_embedding"]
    assert table.shape == (1 + 6 * 6, 128)
    assert torch.equal(table[0], trained["positional_embedding"][0]), "the class token has no place"
    grid = trained["positional_embedding"][1:].T.reshape(1, 128, 4, 4)
    wanted = torch.nn.functional.interpolate(grid, size=(6, 6), mode="bicubic", antialias=True)
    torch.testing.assert_close(table[1:], wanted.reshape(128, 36).T)


@pytest.mark.parametrize(
    ("tensors", "name", "sentence"),
    [
        ({"proj": torch.zeros(2, 2)}, NAME, "holds no CLIP image tower"),
        (None, f"{NAME}-50", "images of 50 px cannot be cut into patches of 8"),
    ],
)
def test_a_file_or_a_size_that_does_not_fit_is_refused(tmp_path, tensors, name, sentence):
    path = tmp_path / "t.safetensors"
    write_small_tower(path) if tensors is None else save_file(tensors, path)
    with pytest.raises(ModelError, match=sentence):
        open_backbone(f"{name}@{path}", device=CPU)


def test_a_tower_that_lacks_a_block_is_refused(tmp_path):
    weights = {name: tensor.clone() for name, tensor in small_visual().state_dict().items()}
    del weights["ln_post.weight"]
    save_file(weights, tmp_path / "t.safetensors")
    with pytest.raises(ModelError, match=r"does not fit a ViT of its sizes: .*ln_post\.weight"):
        open_backbone(f"{NAME}@{tmp_path / 't.safetensors'}", device=CPU)


def test_no_page_and_no_list_offers_it():
    assert not any(is_visual_tower(one.model) for one in available_models())
    assert not is_visual_tower("ViT-B-16/openai")
    assert not is_visual_tower(f"{NAME}-x")


# ---- on CLIP's own weights


@pytest.fixture(scope="module")
def real():
    return open_backbone(real_tower_name(), device=CPU)


@pytest.mark.slow
def test_the_real_tower_is_open_clips_vit_b_16(real):
    runtime.ensure_torchvision()
    import open_clip

    model = open_clip.create_model("ViT-B-16-quickgelu", force_image_size=128)
    model.visual.load_state_dict(real.visual.state_dict())
    images = real.as_input(noise(1, 128))
    with torch.no_grad():
        torch.testing.assert_close(real.visual(images), model.visual.eval()(images))


@pytest.mark.slow
def test_one_step_on_the_real_tower_has_the_gradient_of_autograd(real):
    visual, bank = real.visual, tiny_bank(real.visual, tasks=2, size=0.02)
    composer = tiny_composer(visual, tasks=2, size=0.02)
    images, labels = real.as_input(noise(2, 128)), torch.tensor([0, 1])
    head = normalize(torch.randn(3, 512, generator=torch.Generator().manual_seed(3)), dim=-1)
    # by hand: θ0 + Σ λ τ under autograd
    lam = composer.initial().clone().requires_grad_()
    theta = {
        block.name: dict(visual.named_parameters())[block.name]
        + torch.einsum("t,tn->n", lam[:, m], bank.vectors_of(block)).reshape(block.shape)
        for m, block in enumerate(bank.blocks)
    }
    features = normalize(functional_call(visual, theta, (images,)), dim=-1)
    (wanted,) = torch.autograd.grad(
        cross_entropy(cosine_logits(features, head, logit_scale=100.0), labels), lam
    )
    # by the engine
    composition = ComposedEncoder(visual, composer).at(composer.initial())
    cross_entropy(composition.logits(images, head, logit_scale=100.0), labels).backward()
    found = composition.gradient()
    # float32 sums over 86 million weights in another order
    assert float((found - wanted).norm() / wanted.norm()) < 1e-5


@pytest.mark.slow
def test_weights_composed_on_the_real_tower_are_exported_and_open_again(real, tmp_path):
    encoder = ComposedEncoder(real.visual, tiny_composer(real.visual, tasks=2, size=0.02))
    lam = tiny_lam(encoder)
    state = {f"visual.{name}": weights for name, weights in real.visual.state_dict().items()}
    export(tmp_path / "whole.safetensors", state=state, theta=encoder.composer.compose(lam))
    alone = {
        name.removeprefix("visual."): one for name, one in load_file(tmp_path / "whole.safetensors").items()
    }
    save_file(alone, tmp_path / "t.safetensors")
    again = open_backbone(f"{NAME}@{tmp_path / 't.safetensors'}", device=CPU)
    images = real.as_input(noise(1, 128))
    with torch.no_grad():
        found, wanted = normalize(again.visual(images), dim=-1), encoder.at(lam).features(images)
    assert torch.equal(found, wanted)
