"""Folders for open_clip and for `transformers`: the adapted image tower with the recipe's linear head.

    write_open_clip(classifier, folder)       # image_tower.safetensors, head.safetensors, classes, run.py
    write_transformers(classifier, folder)    # config.json, model.safetensors, transformers.js/, …

Both hold logits = (W z + b) / temperature in W and b, where z are features of length 1.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from atlas_engine.clip.checkpoints.plans import to_transformers
from atlas_engine.clip.feature_levels import PENULTIMATE_NORM
from atlas_engine.errors import ExportError, ModelError
from atlas_engine.exporting.classifier import Classifier, LinearHead, linear_head
from atlas_engine.exporting.onnx_int8 import quantise
from atlas_engine.exporting.onnx_model import make_network_onnx
from atlas_engine.recipe import Json

__all__ = ["write_open_clip", "write_transformers"]

JAVASCRIPT_FOLDER = "transformers.js"
CODE_FILE = Path(__file__).with_name("modeling_atlas.py.txt")
TOWER_PREFIX = "visual."  # of the image tower's weights in open_clip
RESAMPLING = {"bilinear": 2, "bicubic": 3}  # PIL's numbers, which preprocessor configs hold

OPEN_CLIP_LINES = '''\
"""Says which class an image shows: python run.py photo.jpg. Needs open_clip_torch and safetensors."""

import json
import sys
from pathlib import Path

import open_clip
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image
from safetensors.torch import load_file

clip = open_clip.create_model({arch!r}{options}).eval()
left_out = clip.load_state_dict(load_file("image_tower.safetensors"), strict=False)
assert not left_out.unexpected_keys and not any(name.startswith("visual.") for name in left_out.missing_keys)
prepare = image_transform_v2(PreprocessCfg(**{preprocessing!r}), is_train=False)
head, classes = load_file("head.safetensors"), json.loads(Path("classes.json").read_text())
with torch.no_grad():
    features = clip.encode_image(prepare(Image.open(sys.argv[1])).unsqueeze(0), normalize=True)
    probabilities = (features @ head["weight"].T + head["bias"]).softmax(dim=-1)[0]
for probability, best in zip(*probabilities.topk(min(3, len(classes)))):
    print(f"{{probability:6.1%}}  {{classes[best]}}")
'''


def write_open_clip(classifier: Classifier, folder: Path, *, int8: bool = False) -> None:  # noqa: ARG001
    """Write the image tower under open_clip's names, the head, the classes and lines that use them.

    The lines are left out where open_clip does not know the model by name, and where the head works on more
    than the features that open_clip gives.
    """
    head = _warm_head(classifier)
    tower = classifier.network.tower.state_dict()
    save_file(
        {TOWER_PREFIX + name: _own(tensor) for name, tensor in tower.items()},
        folder / "image_tower.safetensors",
        metadata={"format": "pt", **classifier.describe_as_texts()},
    )
    save_file({"weight": _own(head.weight), "bias": _own(head.bias)}, folder / "head.safetensors")
    _write_json(folder / "classes.json", list(classifier.classes))
    arch = _open_clip_arch(classifier)
    if arch and head.weight.shape[1] == classifier.backbone.dim:
        spec = classifier.backbone.preprocessing
        lines = OPEN_CLIP_LINES.format(
            arch=arch,
            options=", force_quick_gelu=True" if classifier.backbone.activation == "quick_gelu" else "",
            preprocessing={
                "size": spec.size,
                "mean": spec.mean,
                "std": spec.std,
                "interpolation": spec.interpolation,
                "resize_mode": spec.resize,
            },
        )
        (folder / "run.py").write_text(lines, encoding="utf-8")


def write_transformers(classifier: Classifier, folder: Path, *, int8: bool = False) -> None:  # noqa: ARG001
    """Write config, weights, preprocessing and code of a CLIP ViT, and its ONNX file for transformers.js.

    `transformers` loads it with `AutoModelForImageClassification` and `trust_remote_code=True`: it has no
    class of its own for a linear head over CLIP's class token.
    """
    head, config = _warm_head(classifier), _transformers_config(classifier)
    if head.weight.shape[1] != classifier.backbone.dim:
        config["penultimate_norm"] = PENULTIMATE_NORM
    try:
        weights = to_transformers(dict(classifier.network.tower.named_parameters()))
    except ModelError as error:
        raise _no_clip_vit(classifier) from error
    weights |= {"classifier.weight": head.weight, "classifier.bias": head.bias}
    save_file(
        {name: _own(tensor) for name, tensor in weights.items()},
        folder / "model.safetensors",
        metadata={"format": "pt"},
    )
    _write_json(folder / "config.json", config)
    _write_json(folder / "preprocessor_config.json", _preprocessor_config(classifier))
    (folder / "modeling_atlas.py").write_text(CODE_FILE.read_text(encoding="utf-8"), encoding="utf-8")
    _write_for_javascript(classifier, folder / JAVASCRIPT_FOLDER)


def _write_for_javascript(classifier: Classifier, folder: Path) -> None:
    """Write a folder that transformers.js's pipeline loads: its ONNX files, in float32 and in eight bits.

    transformers.js knows image classifiers by a list of model types, which decides nothing but the names of
    inputs and outputs; CLIP is not among them, so the type here is that of a plain ViT.
    """
    temperature = classifier.calibration.temperature
    model = make_network_onnx(classifier, images="pixel_values", logits="logits", temperature=temperature)
    (folder / "onnx").mkdir(parents=True)
    config = _transformers_config(classifier)
    labels: dict[str, Json] = {name: config[name] for name in ("id2label", "label2id")}
    kind: dict[str, Json] = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    _write_json(folder / "config.json", kind | labels)
    _write_json(folder / "preprocessor_config.json", _preprocessor_config(classifier))
    (folder / "onnx" / "model.onnx").write_bytes(model.SerializeToString())
    model.graph.CopyFrom(quantise(model.graph))
    (folder / "onnx" / "model_quantized.onnx").write_bytes(model.SerializeToString())


def _warm_head(classifier: Classifier) -> LinearHead:
    """The linear head, divided by the temperature."""
    head = linear_head(classifier)
    temperature = classifier.calibration.temperature
    return LinearHead(head.weight / temperature, head.bias / temperature)


def _transformers_config(classifier: Classifier) -> dict[str, Json]:
    """config.json of a CLIP ViT, or an `ExportError` for any other tower."""
    visual: Any = classifier.backbone.visual
    is_plain = getattr(visual, "pool_type", "") == "tok" and getattr(visual, "attn_pool", None) is None
    if not is_plain or getattr(visual, "final_ln_after_pool", False):
        raise _no_clip_vit(classifier)
    first = visual.transformer.resblocks[0]
    described = classifier.describe()
    return {
        "architectures": ["AtlasForImageClassification"],
        "auto_map": {
            "AutoModelForImageClassification": "modeling_atlas.AtlasForImageClassification",
        },
        "model_type": "clip_vision_model",
        "hidden_size": visual.conv1.out_channels,
        "intermediate_size": first.mlp.c_fc.out_features,
        "projection_dim": visual.proj.shape[1],
        "num_hidden_layers": len(visual.transformer.resblocks),
        "num_attention_heads": first.attn.num_heads,
        "image_size": classifier.backbone.preprocessing.size,
        "patch_size": visual.conv1.kernel_size[0],
        "hidden_act": classifier.backbone.activation,
        "layer_norm_eps": visual.ln_post.eps,
        "penultimate_norm": 0.0,
        "id2label": {str(number): name for number, name in enumerate(classifier.classes)},
        "label2id": {name: number for number, name in enumerate(classifier.classes)},
        "atlas": {name: value for name, value in described.items() if name != "classes"},
    }


def _preprocessor_config(classifier: Classifier) -> dict[str, Json]:
    """preprocessor_config.json: the same resize, crop and normalisation, by PIL's rounding."""
    spec = classifier.backbone.preprocessing
    square: dict[str, Json] = {"height": spec.size, "width": spec.size}
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": spec.size} if spec.resize == "shortest" else square,
        "resample": RESAMPLING[spec.interpolation],
        "do_center_crop": True,
        "crop_size": square,
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(spec.mean),
        "image_std": list(spec.std),
    }


def _no_clip_vit(classifier: Classifier) -> ExportError:
    return ExportError(
        f"{classifier.backbone.name} is not a ViT as CLIP has them, and transformers has no other image "
        "tower of CLIP. Export it as onnx, html or openclip."
    )


def _open_clip_arch(classifier: Classifier) -> str:
    """The architecture's name in open_clip: of `ViT-B-32/openai` and `ViT-B-32@file`; '' for others."""
    arch, _, rest = classifier.recipe.model.replace("@", "/").partition("/")
    return arch if rest and ":" not in arch and classifier.backbone.encode_text is not None else ""


def _own(tensor: Tensor) -> Tensor:
    """A contiguous copy on the CPU: safetensors refuses tensors that share memory."""
    return tensor.detach().to("cpu", copy=True).contiguous()


def _write_json(path: Path, value: Json) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
