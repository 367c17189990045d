"""A whole encoder pickled as the paper's code does it, by a class that does not exist when it is read."""

from __future__ import annotations

import sys
import types
import warnings
from pathlib import Path

import torch
from torch import nn

from atlas_engine import runtime


def save_pickled_encoder(clip: nn.Module, path: Path, *, legacy: bool = False) -> None:
    """`torch.save` of a `src.modeling.ImageEncoder` that holds an open_clip model and its preprocessing."""
    runtime.ensure_torchvision()
    import open_clip

    class ImageEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = clip
            self.train_preprocess = open_clip.image_transform(32, is_train=True)
            self.val_preprocess = open_clip.image_transform(32, is_train=False)
            self.cache_dir = None

    package, module = types.ModuleType("src"), types.ModuleType("src.modeling")
    ImageEncoder.__module__, ImageEncoder.__qualname__ = module.__name__, "ImageEncoder"
    module.ImageEncoder = ImageEncoder
    sys.modules |= {"src": package, "src.modeling": module}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the older format looks in vain for the class's source
            torch.save(ImageEncoder(), path, _use_new_zipfile_serialization=not legacy)
    finally:
        del sys.modules["src"], sys.modules["src.modeling"]
