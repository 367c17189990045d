"""TinyViT-5M for 128 px, under a timm name of its own. Knows nothing of weights.

Its attention windows tile the feature map exactly only at multiples of 224 px; elsewhere timm pads, and
padding wrecks the features. So the windows are cut to the map: size/32, size/32, size/16, size/32.

timm's attention keeps its position biases once it has looked them up outside training. A tower whose weights
are composed anew at every step must not: it would go on with the old ones, silently.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, device, nn

from atlas_engine import runtime

runtime.ready()

from timm.models import register_model  # noqa: E402 - torchvision must be repaired before timm is imported
from timm.models.tiny_vit import Attention, tiny_vit_5m_224  # noqa: E402


def windows(size: int) -> tuple[int, int, int, int]:
    """The four stages' attention windows for square images of `size` px.

    >>> windows(128)
    (4, 4, 8, 4)
    """
    return (size // 32, size // 32, size // 16, size // 32)


def tiny_vit_5m(size: int, **options: Any) -> nn.Module:  # noqa: ANN401
    """TinyViT-5M whose windows fit `size` px, and whose attention always uses its current biases."""
    tower: nn.Module = tiny_vit_5m_224(**{"window_sizes": windows(size), **options})
    for module in tower.modules():
        if isinstance(module, Attention):
            module.__class__ = LiveAttention
    return tower


class LiveAttention(Attention):  # type: ignore[misc]
    """timm's attention without its memory of position biases."""

    def get_attention_biases(self, device: device) -> Tensor:  # noqa: ARG002 - timm's signature
        """The biases (heads N N) as they are now."""
        biases: Tensor = self.attention_biases[:, self.attention_bias_idxs]
        return biases


@register_model  # type: ignore[untyped-decorator]
def atlas_tiny_vit_5m_128(pretrained: bool = False, **options: Any) -> nn.Module:  # noqa: ANN401, ARG001
    """TinyViT-5M for 128 px, as open_clip asks timm for it; its weights come from assets/model."""
    return tiny_vit_5m(128, **options)
