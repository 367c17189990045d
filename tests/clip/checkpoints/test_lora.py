"""An adapter gives the task vector of the model it is merged into; more than a plain LoRA is refused."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from atlas_engine import runtime
from atlas_engine.bank import load_bank
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.clip.checkpoints.lora import holds_lora, read_lora
from atlas_engine.clip.checkpoints.sources import find_sources
from atlas_engine.clip.checkpoints.tower import read_tower
from atlas_engine.errors import ModelError
from atlas_engine.library import import_bank

runtime.ensure_torchvision()
import transformers  # noqa: E402 - `ensure_torchvision` makes it importable
from open_clip.transformer import QuickGELU, VisionTransformer  # noqa: E402

RANK, ALPHA = 3, 12.0
TOLERANCE = 1e-6  # θ0 + ΔW is rounded once, and weights are below one
PEFT = "base_model.model."
CONFIG = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "bias": "none"}
IN_LAYER = {
    "self_attn.q_proj": "attn.q_proj",
    "self_attn.k_proj": "attn.k_proj",
    "self_attn.v_proj": "attn.v_proj",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
OURS = {  # a module of `transformers` → the same in open_clip
    f"vision_model.encoder.layers.{layer}.{theirs}": f"transformer.resblocks.{layer}.{ours}"
    for layer in range(2)
    for theirs, ours in IN_LAYER.items()
} | {"vision_model.embeddings.patch_embedding": "conv1", "visual_projection": "proj"}


@pytest.fixture(scope="module")
def model() -> nn.Module:
    """A `transformers` image tower with its projection, of random weights. Only read it."""
    config = transformers.CLIPVisionConfig(
        hidden_size=32,
        intermediate_size=128,
        projection_dim=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        image_size=32,
        patch_size=8,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.CLIPVisionModelWithProjection(config).eval()


@pytest.fixture(scope="module")
def base(model, tmp_path_factory) -> dict[str, Tensor]:
    """θ0: the same tower in open_clip."""
    folder = tmp_path_factory.mktemp("base")
    return tower_of(model.state_dict(), folder / "model.safetensors")


@pytest.fixture(scope="module")
def factors(model) -> dict[str, tuple[Tensor, Tensor]]:
    """A and B of each module."""
    draw = torch.Generator().manual_seed(1)
    shapes = {module: model.get_submodule(module).weight.shape for module in OURS}
    return {
        module: (
            0.1 * torch.randn(RANK, *shape[1:], generator=draw),
            0.1 * torch.randn(shape[0], RANK, *(1 for _ in shape[2:]), generator=draw),
        )
        for module, shape in shapes.items()
    }


def tower_of(state, path) -> dict[str, Tensor]:
    save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, path)
    return read_tower(path, shapes=shapes_of(blank_tower())).weights


def blank_tower() -> VisionTransformer:
    with torch.device("meta"):
        return VisionTransformer(32, 8, 32, 2, 2, 4.0, output_dim=16, act_layer=QuickGELU).eval()


def shapes_of(visual):
    return {name: tuple(weights.shape) for name, weights in visual.named_parameters()}


def merged_by_hand(model, factors, scale):
    """The state dict of `transformers` with every ΔW added."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for module, (a, b) in factors.items():
        state[f"{module}.weight"] += scale * torch.einsum("or,r...->o...", b.flatten(1), a)
    return state


def write_adapter(folder, factors, config=CONFIG, *, more=None):
    """PEFT's two files."""
    folder.mkdir(parents=True)
    state = {f"{PEFT}{module}.lora_A.weight": a for module, (a, _) in factors.items()}
    state |= {f"{PEFT}{module}.lora_B.weight": b for module, (_, b) in factors.items()} | (more or {})
    save_file(state, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder / "adapter_model.safetensors"


def write_open_clip(path, factors, *, prefix="visual.", middle="lora_", ending=""):
    """A state dict over open_clip's names."""
    state = {f"{prefix}{OURS[module]}.{middle}A{ending}": a for module, (a, _) in factors.items()}
    state |= {f"{prefix}{OURS[module]}.{middle}B{ending}": b for module, (_, b) in factors.items()}
    torch.save(state, path)
    return path


def farthest(weights, expected) -> float:
    assert list(weights) == list(expected)
    return max((weights[name] - expected[name]).abs().max().item() for name in expected)


def test_an_adapter_and_its_merged_model_are_the_same_task_vector(model, base, factors, tmp_path):
    visual = VisionTransformer(32, 8, 32, 2, 2, 4.0, output_dim=16, act_layer=QuickGELU).eval()
    visual.load_state_dict(base)
    backbone = Backbone(
        name="tiny",
        visual=visual,
        preprocessing=Preprocessing(size=32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)),
        logit_scale=100.0,
        dim=16,
        templates="kinds",
        device=torch.device("cpu"),
        encode_text=lambda sentences: torch.zeros(len(sentences), 16),
    )
    save_file(merged_by_hand(model, factors, ALPHA / RANK), tmp_path / "merged.safetensors")
    write_adapter(tmp_path / "cars", factors)
    write_open_clip(tmp_path / "plain.pt", factors)
    sources = find_sources([tmp_path / "merged.safetensors", tmp_path / "cars", tmp_path / "plain.pt"])
    path = tmp_path / "bank" / "b.safetensors"
    imported = list(import_bank(sources, backbone, path, storage="float32", lora_alpha=ALPHA))
    assert [(one.name, one.layout) for one in imported] == [
        ("merged", "transformers"),
        ("cars", "lora"),
        ("plain", "lora"),
    ]
    bank = load_bank(path)
    assert [info.kind for info in bank.infos] == ["standard", "lora", "lora"]
    merged, *adapters = (bank.vector(task) for task in bank.tasks)
    assert merged.norm() > 1
    for vector in adapters:
        assert farthest(vector.blocks, merged.blocks) < TOLERANCE


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({}, ALPHA / RANK),
        ({"use_rslora": True}, ALPHA / RANK**0.5),
        ({"fan_in_fan_out": True}, ALPHA / RANK),
        ({"lora_alpha": 1}, 1 / RANK),
        ({"lora_alpha": 1, "alpha_pattern": {r".*\.\w+": ALPHA, "visual_projection": ALPHA}}, ALPHA / RANK),
    ],
    ids=["plain", "rank-stabilised", "fan_in_fan_out", "another alpha", "alpha by pattern"],
)
def test_the_config_beside_an_adapter_sets_its_scale(model, base, factors, tmp_path, config, scale):
    path = write_adapter(tmp_path / "cars", factors, CONFIG | config)
    expected = tower_of(merged_by_hand(model, factors, scale), tmp_path / "model.safetensors")
    assert holds_lora(path)
    assert farthest(read_lora(path, base=base).weights, expected) < TOLERANCE


@pytest.mark.parametrize("prefix", ["", "visual.", "module.visual.", "base_model.model.visual."])
@pytest.mark.parametrize(("middle", "ending"), [("lora_", ""), ("lora_", ".weight"), ("w_lora_", "")])
def test_open_clip_names_are_found_under_any_prefix(model, base, factors, tmp_path, prefix, middle, ending):
    path = write_open_clip(tmp_path / "w.pt", factors, prefix=prefix, middle=middle, ending=ending)
    expected = tower_of(merged_by_hand(model, factors, ALPHA / RANK), tmp_path / "model.safetensors")
    assert farthest(read_lora(path, base=base, alpha=ALPHA).weights, expected) < TOLERANCE
    with pytest.raises(ModelError, match=r"nothing tells the alpha that w\.pt .* Give it as --lora-alpha"):
        read_lora(path, base=base)


def test_the_towers_own_weights_may_stand_beside_its_adapter(base, tmp_path):
    a, b = torch.ones(1, 32), torch.ones(128, 1)
    name = "transformer.resblocks.1.mlp.c_fc"
    whole = {f"visual.{block}": tensor + 1 for block, tensor in base.items()}
    torch.save({**whole, f"visual.{name}.lora_A": a, f"visual.{name}.lora_B": b}, tmp_path / "w.pt")
    lora = read_lora(tmp_path / "w.pt", base=base, alpha=2)
    expected = {block: tensor + (3 if block == f"{name}.weight" else 1) for block, tensor in base.items()}
    assert farthest(lora.weights, expected) < TOLERANCE


def test_the_text_tower_is_left_out_and_counted(base, factors, tmp_path):
    text = {
        f"{PEFT}text_model.encoder.layers.0.mlp.fc1.lora_A.weight": torch.ones(RANK, 8),
        f"{PEFT}text_model.encoder.layers.0.mlp.fc1.lora_B.weight": torch.ones(32, RANK),
    }
    path = write_adapter(tmp_path / "both", factors, more=text)
    assert read_lora(path, base=base).left_out == 2
    path = write_adapter(tmp_path / "text", {}, more=text)
    with pytest.raises(
        ModelError, match=r"adapts the text tower alone\. A task vector is of the image tower"
    ):
        read_lora(path, base=base)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use_dora": True}, "it is a DoRA"),
        ({"bias": "lora_only"}, r"it trains biases \(lora_only\)"),
        ({"lora_bias": True}, "biases of its own"),
        ({"peft_type": "LOHA"}, "of the kind LOHA"),
        ({"init_lora_weights": "pissa_niter_4"}, "starts as pissa_niter_4"),
    ],
)
def test_more_than_a_plain_lora_is_refused_with_what_to_do(base, factors, tmp_path, config, words):
    path = write_adapter(tmp_path / "cars", factors, CONFIG | config)
    with pytest.raises(ModelError, match=rf"more than a plain LoRA: .*{words}.* Merge it into its model"):
        read_lora(path, base=base)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (
            {"vision_model.post_layernorm.weight": torch.ones(32)},
            "also changes .*post_layernorm.*modules_to_save",
        ),
        ({"visual_projection.lora_magnitude_vector": torch.ones(16)}, "also changes .*lora_magnitude_vector"),
        ({"vision_model.head.lora_A.weight": torch.ones(3, 32)}, "only one half of the adapter of .*head"),
    ],
    ids=["modules_to_save", "DoRA", "half"],
)
def test_tensors_that_are_not_understood_are_refused(base, factors, tmp_path, more, words):
    path = write_adapter(tmp_path / "c", factors, more={f"{PEFT}{name}": t for name, t in more.items()})
    with pytest.raises(ModelError, match=words):
        read_lora(path, base=base)


def test_an_adapter_of_another_model_is_refused(base, factors, tmp_path):
    module = "vision_model.encoder.layers.0.mlp.fc1"
    wide = {module: (torch.ones(2, 768), torch.ones(3072, 2))}
    with pytest.raises(
        ModelError, match=r"does not fit the model: .*fc1 has A \(2, 768\) .* are \(128, 32\)"
    ):
        read_lora(write_adapter(tmp_path / "wide", wide), base=base)
    deep = {module.replace(".0.", ".7."): factors[module]}
    with pytest.raises(ModelError, match=r"layers\.7\.mlp\.fc1, which the model does not have"):
        read_lora(write_adapter(tmp_path / "deep", deep), base=base)


def test_a_checkpoint_without_factors_is_no_adapter(base, tmp_path):
    save_file(base, tmp_path / "w.safetensors")
    assert not holds_lora(tmp_path / "w.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"broken")
    assert not holds_lora(tmp_path / "broken.safetensors")
