"""A whole CLIP, both towers, of another project as an open_clip state dict.

    read_clip("ViT-B-32.pt", shapes={name: tuple(w.shape) for name, w in clip.state_dict().items()})

OpenAI's own files hold open_clip's names and three sizes beside them (`OPENAI_SIZES`), in a TorchScript
archive or in a state dict saved from it. `transformers` has names of its own. Files with open_clip's names
alone are left to open_clip, which also fits position embeddings to another image size.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from atlas_engine.clip.checkpoints.checkpoint import Checkpoint, Shapes, open_checkpoint
from atlas_engine.clip.checkpoints.plans import (
    BlockSource,
    Plan,
    open_clip_plan,
    transformers_image_plan,
    transformers_text_plan,
)
from atlas_engine.clip.checkpoints.torchfile import TORCHSCRIPT
from atlas_engine.clip.checkpoints.tower import require_fit
from atlas_engine.errors import ModelError

__all__ = ["OPENAI_SIZES", "needs_conversion", "read_clip"]

OPENAI_SIZES = ("input_resolution", "context_length", "vocab_size")


def needs_conversion(path: Path | str) -> bool:
    """Whether a file is OpenAI's or of `transformers`, so that `read_clip` has to read it."""
    try:
        with open_checkpoint(path) as file:
            return _is_openai(file) or _transformers_plan(file.shapes) is not None
    except ModelError:  # open_clip says what is wrong with the file
        return False


def read_clip(path: Path | str, *, shapes: Shapes) -> dict[str, Tensor]:
    """The weights of a whole CLIP, which must have the entries in `shapes`."""
    with open_checkpoint(path) as file:
        plan = None if _is_openai(file) else _transformers_plan(file.shapes)
        if plan is None:
            plan = open_clip_plan(file.shapes, wanted=shapes)
        require_fit(Path(path).name, plan, file.shapes, list(shapes), shapes)
        return {name: plan[name].read(file) for name in shapes}


def _is_openai(file: Checkpoint) -> bool:
    is_torchscript = any(name.startswith(TORCHSCRIPT) for name in file.class_names)
    return is_torchscript or all(name in file.shapes for name in OPENAI_SIZES)


def _transformers_plan(shapes: Shapes) -> Plan | None:
    """The plan of both towers; None if the file does not hold both."""
    image, text = transformers_image_plan(shapes), transformers_text_plan(shapes)
    if image is None or text is None or "logit_scale" not in shapes:
        return None
    visual = {f"visual.{name}": source for name, source in image.items()}
    return {**visual, **text, "logit_scale": BlockSource(("logit_scale",))}
