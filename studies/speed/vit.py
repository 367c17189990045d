"""Sessions at the shapes of CLIP's ViTs with random weights, so that nothing is downloaded.

    engine, bank = open_random_vit(VIT_B_32, vectors=20, storage="int4")
    engine.few_shot(noise_support(VIT_B_32), bank=bank).result()

The tower is open_clip's, which can be split into a frozen prefix and a trainable part as CLIP's own. What it
answers means nothing; what it costs is what CLIP costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.vector import fingerprint
from atlas_engine.clip.backbone import Backbone, Preprocessing
from atlas_engine.clip.visual_tower import LOGIT_SCALE, MEAN, STD, build_tower
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from studies.speed.composition import draw_bank
from studies.speed.predict import noise_images

__all__ = ["CLASSES", "SMALL_VIT_L_14", "VIT_B_32", "VitShape", "noise_support", "open_random_vit"]

CLASSES, SHOTS = ("otter", "seal"), 4


@dataclass(frozen=True)
class VitShape:
    """The sizes of a ViT, of which CLIP's are four times as wide in an MLP as elsewhere."""

    name: str
    width: int
    layers: int
    patch: int
    pixels: int
    embedding: int

    @property
    def block_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each block, by open_clip's names."""
        wide, tokens = self.width, (self.pixels // self.patch) ** 2 + 1
        shapes: dict[str, tuple[int, ...]] = {
            "class_embedding": (wide,),
            "positional_embedding": (tokens, wide),
            "proj": (wide, self.embedding),
            "conv1.weight": (wide, 3, self.patch, self.patch),
            "ln_pre.weight": (wide,),
            "ln_pre.bias": (wide,),
        }
        for layer in range(self.layers):
            at = f"transformer.resblocks.{layer}"
            shapes |= {
                f"{at}.ln_1.weight": (wide,),
                f"{at}.ln_1.bias": (wide,),
                f"{at}.attn.in_proj_weight": (3 * wide, wide),
                f"{at}.attn.in_proj_bias": (3 * wide,),
                f"{at}.attn.out_proj.weight": (wide, wide),
                f"{at}.attn.out_proj.bias": (wide,),
                f"{at}.ln_2.weight": (wide,),
                f"{at}.ln_2.bias": (wide,),
                f"{at}.mlp.c_fc.weight": (4 * wide, wide),
                f"{at}.mlp.c_fc.bias": (4 * wide,),
                f"{at}.mlp.c_proj.weight": (wide, 4 * wide),
                f"{at}.mlp.c_proj.bias": (wide,),
            }
        return shapes | {"ln_post.weight": (wide,), "ln_post.bias": (wide,)}

    def draw_weights(self, *, seed: int = 0) -> dict[str, Tensor]:
        """Weights of about the size that training gives: norms at 1, biases at 0, others of length 1."""
        draw = torch.Generator().manual_seed(seed)

        def weights(name: str, shape: tuple[int, ...]) -> Tensor:
            if len(shape) == 1 and "embedding" not in name:
                return torch.full(shape, float(".ln_" in f".{name}" and name.endswith("weight")))
            return torch.randn(shape, generator=draw).div_(math.sqrt(self.width))

        return {name: weights(name, shape) for name, shape in self.block_shapes.items()}


VIT_B_32 = VitShape("ViT-B/32", width=768, layers=12, patch=32, pixels=224, embedding=512)
SMALL_VIT_L_14 = VitShape("half of ViT-L/14", width=512, layers=12, patch=14, pixels=112, embedding=384)
"""ViT-L/14 at half of its width, depth, embedding and image size."""


def open_random_vit(shape: VitShape, *, vectors: int, storage: str) -> tuple[Atlas, TaskVectorBank]:
    """A session with a random tower of this shape and embeddings of `CLASSES`, and a random bank for it."""
    visual = build_tower(shape.draw_weights()).eval().requires_grad_(False)
    backbone = Backbone(
        name=shape.name,
        visual=visual,
        preprocessing=Preprocessing(size=shape.pixels, mean=MEAN, std=STD),
        logit_scale=LOGIT_SCALE,
        dim=shape.embedding,
        templates="plain",
        device=torch.device("cpu"),
        encode_text=None,
    )
    draw = torch.Generator().manual_seed(1)
    embeddings = {name: torch.randn(shape.embedding, generator=draw) for name in CLASSES}
    theta0 = dict(visual.named_parameters())
    bank = draw_bank(theta0, tasks=vectors, storage=storage, base=fingerprint(theta0))
    return Atlas(backbone, class_embeddings=embeddings), bank


def noise_support(shape: VitShape) -> Support:
    """Images of noise, `SHOTS` for each of `CLASSES`."""
    labels = tuple(label for label in range(len(CLASSES)) for _ in range(SHOTS))
    return Support(tuple(noise_images(len(labels), side=shape.pixels)), labels, CLASSES)
