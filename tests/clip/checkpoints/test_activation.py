"""Which activation a file's weights were trained with is read from the file or from what lies beside it."""

from __future__ import annotations

import hashlib
import json
import logging

import pytest
import torch
from safetensors.torch import save_file

from atlas_engine import runtime
from atlas_engine.clip import models
from atlas_engine.clip.checkpoints.activation import DECLARED_HASH, find_activation
from atlas_engine.clip.models import open_backbone
from atlas_engine.engine import Atlas
from tests.pickled import save_pickled_encoder
from tests.standins import ARCH, small_model

runtime.ensure_torchvision()
import open_clip  # noqa: E402 - needs `ensure_torchvision`
import transformers  # noqa: E402

CPU = torch.device("cpu")
SENTENCES = ["an otter", "a seal in the snow"]
TOLERANCE = 1e-5  # the same sums in another order, on features of size about one


def clip_with(*, quick: bool) -> torch.nn.Module:
    return small_model(seed=5, quick_gelu=quick)


def state_of(clip) -> dict[str, torch.Tensor]:
    return {name: tensor.clone().contiguous() for name, tensor in clip.state_dict().items()}


def openai_state(clip) -> dict[str, torch.Tensor]:
    """What `state_dict()` of OpenAI's archive gives: three sizes beside the weights."""
    sizes = {"input_resolution": 32, "context_length": 16, "vocab_size": 49408}
    return state_of(clip) | {name: torch.tensor(size) for name, size in sizes.items()}


def save_archive(clip, path) -> None:
    """A TorchScript archive of both encoders, as OpenAI publishes its models."""
    inputs = {"encode_image": torch.randn(1, 3, 32, 32), "encode_text": torch.zeros(1, 16, dtype=torch.long)}
    torch.jit.save(torch.jit.trace_module(clip, inputs, check_trace=False), path)


def save_openai_state(clip, path) -> None:
    torch.save(openai_state(clip), path)


def save_with_open_clip_config(clip, path) -> None:
    save_file(state_of(clip), path)
    config = {"model_cfg": {"embed_dim": 16, "quick_gelu": True}, "preprocess_cfg": {}}
    (path.parent / "open_clip_config.json").write_text(json.dumps(config))


def save_in_the_hubs_folder(clip, path) -> None:
    save_file(state_of(clip), path)


@pytest.mark.filterwarnings("ignore:.*:torch.jit.TracerWarning", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("save", "file"),
    [
        (save_archive, "ViT-B-32.pt"),
        (save_openai_state, "state.pt"),
        (save_with_open_clip_config, "open_clip_model.safetensors"),
        (save_in_the_hubs_folder, "models--timm--vit_base_patch32_clip_224.openai/snapshots/a/m.safetensors"),
    ],
)
def test_openais_weights_open_with_quick_gelu_from_each_of_their_files(tmp_path, save, file, caplog):
    clip, path = clip_with(quick=True), tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    save(clip, path)
    caplog.clear()
    backbone = open_backbone(f"{ARCH}@{path}", device=CPU)
    assert caplog.messages == []
    assert backbone.activation == find_activation(path) == "quick_gelu"
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        expected = clip.encode_image(images)
        assert (backbone.visual(images) - expected).abs().max() < TOLERANCE
        tokens = open_clip.get_tokenizer(ARCH)(SENTENCES)
        assert (backbone.encode_text(SENTENCES) - clip.encode_text(tokens)).abs().max() < TOLERANCE
        assert (clip_with(quick=False).encode_image(images) - expected).abs().max() > 100 * TOLERANCE


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_a_whole_transformers_clip_opens_with_the_activation_in_its_config(tmp_path, act):
    shared = {"hidden_act": act, "hidden_size": 32, "intermediate_size": 128, "num_attention_heads": 2}
    vision = {**shared, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8}
    text = {**shared, "num_hidden_layers": 1, "max_position_embeddings": 16, "eos_token_id": 49407}
    config = transformers.CLIPConfig(
        vision_config=vision, text_config={**text, "vocab_size": 49408}, projection_dim=16
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        theirs = transformers.CLIPModel(config).eval()
    with torch.no_grad():
        draw = torch.Generator().manual_seed(1)
        for weights in theirs.parameters():
            weights.add_(0.1 * torch.randn(weights.shape, generator=draw))
    theirs.save_pretrained(tmp_path)
    backbone = open_backbone(f"{ARCH}@{tmp_path / 'model.safetensors'}", device=CPU)
    assert backbone.activation == act
    images = torch.randn(2, 3, 32, 32, generator=draw)
    tokens = open_clip.get_tokenizer(ARCH)(SENTENCES)
    with torch.inference_mode():
        pooled = theirs.vision_model(pixel_values=images).pooler_output
        assert (backbone.visual(images) - theirs.visual_projection(pooled)).abs().max() < TOLERANCE
        pooled = theirs.text_model(input_ids=tokens).pooler_output
        assert (backbone.encode_text(SENTENCES) - theirs.text_projection(pooled)).abs().max() < TOLERANCE
    assert backbone.logit_scale == pytest.approx(theirs.logit_scale.exp().item())


@pytest.mark.parametrize("quick", [True, False])
def test_a_pickled_encoder_tells_its_activation_by_the_classes_of_its_modules(tmp_path, quick):
    save_pickled_encoder(clip_with(quick=quick), tmp_path / "finetuned.pt")
    assert find_activation(tmp_path / "finetuned.pt") == ("quick_gelu" if quick else "gelu")


def test_a_file_with_the_published_name_and_sha256_is_that_file(tmp_path, monkeypatch):
    path = tmp_path / "b32-quickgelu-0000.safetensors"
    save_file(state_of(clip_with(quick=True)), path)
    assert find_activation(path) is None
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    urls = {
        f"https://openaipublic.azureedge.net/clip/models/{digest}/{path.name}": "quick_gelu",
        f"https://openaipublic.azureedge.net/clip/models/{digest[::-1]}/{path.name}": None,
        f"https://dl.fbaipublicfiles.com/MMPT/metaclip/{path.name}": "quick_gelu",
    }
    for url, expected in urls.items():
        rows = {("ViT-B-32", "openai"): {"url": url, "hf_hub": "", "quick_gelu": True}}
        monkeypatch.setattr(open_clip, "list_pretrained", lambda rows=rows: list(rows))
        monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *row, rows=rows: rows[row])
        assert find_activation(path) == expected


def test_every_published_openai_url_declares_a_sha256():
    urls = [open_clip.get_pretrained_url(model, "openai") for model in open_clip.list_openai_models()]
    assert len(urls) > 5
    assert all(DECLARED_HASH.search(url) for url in urls)


def test_a_file_that_does_not_tell_is_opened_as_named_and_a_sentence_says_so(tmp_path, monkeypatch, caplog):
    path = tmp_path / "mine.safetensors"
    save_file(state_of(clip_with(quick=True)), path)
    known = [*open_clip.list_models(), f"{ARCH}-quickgelu"]
    monkeypatch.setattr(open_clip, "list_models", lambda: known)
    with caplog.at_level(logging.WARNING, logger=models.__name__):
        assert open_backbone(f"{ARCH}@{path}", device=CPU).activation == "gelu"
    assert caplog.messages == [
        "mine.safetensors does not tell which activation function its weights were trained with: "
        f"{ARCH} computes GELU. If they come from OpenAI's weights, open {ARCH}-quickgelu@mine.safetensors "
        "instead."
    ]


def test_the_cache_tells_the_same_weights_with_two_activations_apart(tmp_path):
    path = tmp_path / "w.safetensors"
    save_file(state_of(clip_with(quick=True)), path)
    plain = open_backbone(f"{ARCH}@{path}", device=CPU)
    (tmp_path / "config.json").write_text('{"hidden_act": "quick_gelu"}')
    quick = open_backbone(f"{ARCH}@{path}", device=CPU)
    assert (plain.activation, quick.activation) == ("gelu", "quick_gelu")
    assert Atlas(plain).weights_id != Atlas(quick).weights_id
