"""Checkpoints of other projects give the features that their own library computes; others are refused."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from atlas_engine import runtime
from atlas_engine.clip.checkpoints.activation import activation_of
from atlas_engine.clip.checkpoints.tower import read_tower
from atlas_engine.errors import ModelError
from tests.pickled import save_pickled_encoder
from tests.tiny import tiny_clip

runtime.ensure_torchvision()
import transformers  # noqa: E402 - `runtime.ready` makes it importable
from open_clip.transformer import QuickGELU, VisionTransformer  # noqa: E402

SMALL = {"width": 32, "patch_size": 8, "image_size": 32, "layers": 2, "heads": 2, "output_dim": 16}
B32 = {"width": 768, "patch_size": 32, "image_size": 224, "layers": 12, "heads": 12, "output_dim": 512}
B16 = {"width": 768, "patch_size": 16, "image_size": 224, "layers": 1, "heads": 12, "output_dim": 512}
L14 = {"width": 1024, "patch_size": 14, "image_size": 224, "layers": 1, "heads": 16, "output_dim": 768}
TOLERANCE = 1e-5  # the same sums in another order, on features of size about one


def our_tower(size: dict, *, act=QuickGELU) -> VisionTransformer:
    """A tower without weights, to be loaded."""
    with torch.device("meta"):
        return VisionTransformer(**size, mlp_ratio=4.0, act_layer=act).eval()


def their_config(size: dict) -> transformers.CLIPVisionConfig:
    return transformers.CLIPVisionConfig(
        hidden_size=size["width"],
        intermediate_size=4 * size["width"],
        projection_dim=size["output_dim"],
        num_hidden_layers=size["layers"],
        num_attention_heads=size["heads"],
        image_size=size["image_size"],
        patch_size=size["patch_size"],
    )


def their_model(kind: str, size: dict) -> nn.Module:
    """A `transformers` model with random weights, in biases and norms too."""
    config = their_config(size)
    with torch.device("meta"):  # their own initialisation of a B/32 takes longer than all else here
        if kind == "CLIPModel":
            text = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
            whole = transformers.CLIPConfig(
                text_config=text, vision_config=config.to_dict(), projection_dim=size["output_dim"]
            )
            model = transformers.CLIPModel(whole)
        else:
            model = getattr(transformers, kind)(config)
    model = model.to_empty(device="cpu").eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            bound = (3 / weights[0].numel()) ** 0.5 if weights.ndim > 1 else 0.1
            weights.uniform_(-bound, bound, generator=draw)
            if "norm" in name and name.endswith("weight"):
                weights.add_(1)
        for name, buffer in model.named_buffers():
            if name.endswith("position_ids"):
                buffer.copy_(torch.arange(buffer.shape[1]))
    return model


def shapes_of(visual: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(weights.shape) for name, weights in visual.named_parameters()}


def saved(model: nn.Module, path):
    save_file({name: tensor.clone() for name, tensor in model.state_dict().items()}, path)
    return path


def images_for(size: dict) -> torch.Tensor:
    side = size["image_size"]
    return torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))


# transformers.


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("CLIPVisionModelWithProjection", SMALL),
        ("CLIPModel", SMALL),
        ("CLIPVisionModelWithProjection", B32),
        ("CLIPVisionModelWithProjection", B16),
        ("CLIPModel", L14),
    ],
    ids=["small", "small whole CLIP", "B/32", "B/16 of one layer", "L/14 of one layer, whole CLIP"],
)
def test_a_transformers_model_gives_the_same_features_in_open_clip(tmp_path, kind, size):
    theirs, ours = their_model(kind, size), our_tower(size)
    tower = read_tower(saved(theirs, tmp_path / "model.safetensors"), shapes=shapes_of(ours))
    ours.load_state_dict(tower.weights, assign=True)
    with torch.inference_mode():
        images = images_for(size)
        expected = theirs.visual_projection(theirs.vision_model(pixel_values=images).pooler_output)
        found = ours(images)
    assert (tower.layout, tower.absent) == ("transformers", ())
    assert found.abs().mean() > 0.05  # not equal because both are zero
    assert (found - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "vision_model."])
def test_a_vision_model_without_projection_reports_it_absent(tmp_path, wrapped):
    theirs, ours = their_model("CLIPVisionModel", SMALL), our_tower(SMALL)
    inner = {
        name.removeprefix("vision_model."): tensor.clone() for name, tensor in theirs.state_dict().items()
    }
    state = {f"vision_model.{name}" if wrapped else name: tensor for name, tensor in inner.items()}
    save_file(state, tmp_path / "model.safetensors")
    tower = read_tower(tmp_path / "model.safetensors", shapes=shapes_of(ours))
    assert tower.absent == ("proj",)
    assert "proj" not in tower.weights
    draw = torch.Generator().manual_seed(1)
    ours.load_state_dict(tower.weights | {"proj": torch.randn(32, 16, generator=draw)}, assign=True)
    with torch.inference_mode():
        images = images_for(SMALL)
        expected = theirs(pixel_values=images).pooler_output @ ours.proj
        assert (ours(images) - expected).abs().max() < TOLERANCE


def test_without_quick_gelu_the_features_would_differ(tmp_path):
    theirs, ours = their_model("CLIPVisionModelWithProjection", SMALL), our_tower(SMALL, act=nn.GELU)
    tower = read_tower(saved(theirs, tmp_path / "m.safetensors"), shapes=shapes_of(ours))
    ours.load_state_dict(tower.weights, assign=True)
    with torch.inference_mode():
        images = images_for(SMALL)
        assert (ours(images) - theirs(pixel_values=images).image_embeds).abs().max() > 100 * TOLERANCE
    assert (activation_of(ours), activation_of(our_tower(SMALL))) == ("gelu", "quick_gelu")


# open_clip.


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
@pytest.mark.parametrize("prefix", ["", "visual.", "module.visual.", "image_encoder.model.visual."])
def test_a_state_dict_is_found_under_any_prefix(tmp_path, prefix, ending):
    visual = tiny_clip().visual
    state = {f"{prefix}{name}": tensor.clone() for name, tensor in visual.state_dict().items()}
    state["logit_scale"] = torch.tensor(1.0)
    path = tmp_path / f"weights.{ending}"
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    assert_same(read_tower(path, shapes=shapes_of(visual)).weights, visual)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
@pytest.mark.parametrize("tower", ["vit", "resnet"])
def test_a_whole_training_state_is_searched_for_the_image_tower(tmp_path, tower, legacy):
    clip = tiny_clip(tower)
    state = {
        "epoch": 3,
        "state_dict": clip.state_dict(),
        "optimizer": {"state": {0: torch.ones(2)}, "lr": [0.1]},
    }
    torch.save(state, tmp_path / "w.pt", _use_new_zipfile_serialization=not legacy)
    assert_same(read_tower(tmp_path / "w.pt", shapes=shapes_of(clip.visual)).weights, clip.visual)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_keep_their_dtype(tmp_path, dtype):
    visual = tiny_clip().visual
    torch.save({name: tensor.to(dtype) for name, tensor in visual.state_dict().items()}, tmp_path / "w.pt")
    weights = read_tower(tmp_path / "w.pt", shapes=shapes_of(visual)).weights
    assert all(torch.equal(weights[name], tensor.to(dtype)) for name, tensor in visual.named_parameters())


def test_views_of_one_storage_are_read_separately(tmp_path):
    flat = torch.arange(24.0)
    torch.save({"a": flat[:12].view(3, 4).T, "b": flat[12:]}, tmp_path / "w.pt")
    weights = read_tower(tmp_path / "w.pt", shapes={"a": (4, 3), "b": (12,)}).weights
    assert torch.equal(weights["a"], flat[:12].view(3, 4).T)
    assert torch.equal(weights["b"], flat[12:])


# Pickled modules.


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "before torch 1.6"])
def test_a_pickled_encoder_is_read_without_its_classes(tmp_path, legacy):
    visual = tiny_clip().visual
    save_pickled_encoder(tiny_clip(), tmp_path / "finetuned.pt", legacy=legacy)
    assert_same(read_tower(tmp_path / "finetuned.pt", shapes=shapes_of(visual)).weights, visual)


# Files that do not fit.


def test_a_checkpoint_of_another_size_is_refused_with_what_differs(tmp_path):
    theirs = their_model("CLIPVisionModelWithProjection", L14)
    path = saved(theirs, tmp_path / "l14.safetensors")
    with pytest.raises(ModelError) as raised:
        read_tower(path, shapes=shapes_of(our_tower(SMALL)))
    text = str(raised.value)
    assert text.startswith("l14.safetensors does not fit the model: transformer.resblocks.1")
    assert " more. It holds" in text
    assert "a ViT of width 1024, patch 14, 1 layers, the model is a ViT of width 32" in text


def test_wrong_names_are_listed_and_deeper_towers_are_refused(tmp_path):
    visual = tiny_clip().visual
    state = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    renamed = {("projection" if name == "proj" else name): tensor for name, tensor in state.items()}
    save_file(renamed, tmp_path / "renamed.safetensors")
    with pytest.raises(ModelError, match=r"does not fit the model: proj is missing\."):
        read_tower(tmp_path / "renamed.safetensors", shapes=shapes_of(visual))
    deeper = state | {"transformer.resblocks.2.ln_1.weight": torch.ones(32)}
    save_file(deeper, tmp_path / "deeper.safetensors")
    with pytest.raises(ModelError, match=r"resblocks\.2\.ln_1\.weight is not expected"):
        read_tower(tmp_path / "deeper.safetensors", shapes=shapes_of(visual))


def test_a_known_architecture_is_named_in_the_error(tmp_path):
    save_file({"embeddings.patch_embedding.weight": torch.zeros(768, 3, 32, 32)}, tmp_path / "m.safetensors")
    with pytest.raises(ModelError, match=r"the model is ViT-B-32\. Give the one that it was tuned from"):
        read_tower(tmp_path / "m.safetensors", shapes=shapes_of(our_tower(B32)))


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_file_is_one_sentence(tmp_path, ending, share):
    visual = tiny_clip().visual
    path = tmp_path / f"w.{ending}"
    state = {name: tensor.clone() for name, tensor in visual.state_dict().items()}
    save_file(state, path) if ending == "safetensors" else torch.save(state, path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(
        ModelError, match=r"is damaged or no (torch|safetensors) file: .* Fetch or save it again"
    ):
        read_tower(path, shapes=shapes_of(visual))


def test_a_truncated_legacy_file_is_one_sentence(tmp_path):
    visual = tiny_clip().visual
    torch.save(visual.state_dict(), tmp_path / "w.pt", _use_new_zipfile_serialization=False)
    (tmp_path / "w.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:-5000])
    with pytest.raises(ModelError, match="is damaged or no torch file"):
        read_tower(tmp_path / "w.pt", shapes=shapes_of(visual))


def test_a_flipped_bit_in_a_zip_is_found(tmp_path):
    visual = tiny_clip().visual
    torch.save(visual.state_dict(), tmp_path / "w.pt")
    data = bytearray((tmp_path / "w.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "w.pt").write_bytes(data)
    with pytest.raises(ModelError, match="is damaged or no torch file: Bad CRC"):
        read_tower(tmp_path / "w.pt", shapes=shapes_of(visual))


@pytest.mark.parametrize(
    ("name", "words"), [("nowhere.pt", "does not exist"), ("photo.jpg", "is not a weights file")]
)
def test_a_path_that_is_no_weights_file_is_refused(tmp_path, name, words):
    with pytest.raises(ModelError, match=words):
        read_tower(tmp_path / name, shapes={"proj": (1, 1)})


def assert_same(weights: dict[str, torch.Tensor], visual: nn.Module) -> None:
    expected = dict(visual.named_parameters())
    assert list(weights) == list(expected)
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
