"""Adapted weights as a file that open_clip loads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from atlas_engine.errors import BankError
from atlas_engine.files import atomic_write

__all__ = ["export"]

TOWER_PREFIX = "visual."


def export(path: Path | str, *, state: Mapping[str, Tensor], theta: Mapping[str, Tensor]) -> None:
    """Write a whole CLIP with the image tower at `theta`, as safetensors.

    `state` is the base model's `state_dict()` and `theta` the composed blocks, without the prefix `visual.`.
    Every tensor keeps the dtype that it has in `state`. Load it with
    `open_clip.create_model(name, pretrained=path)`.
    """
    unknown = [name for name in theta if TOWER_PREFIX + name not in state]
    if unknown:
        raise BankError(
            f"the model has no weights '{TOWER_PREFIX}{unknown[0]}' ({len(unknown)} names are strange). "
            "Export to the model that the bank was made for."
        )
    adapted = {TOWER_PREFIX + name: weights for name, weights in theta.items()}
    # Each tensor is copied: safetensors refuses tensors that share memory, and θ(λ) lives in one piece.
    whole = {
        name: adapted.get(name, base).detach().to("cpu", base.dtype, copy=True)
        for name, base in state.items()
    }
    with atomic_write(path) as part:
        save_file(
            {name: weights.contiguous() for name, weights in whole.items()}, part, metadata={"format": "pt"}
        )
