"""aTLAS Studio's engine: CLIP that adapts to your classes by learning how to mix task vectors.

    import atlas_engine as atlas

    with atlas.open() as engine:
        print(engine.predict(["cat.jpg"], ["a cat", "a dog"]))

Importing this package is cheap: a public name loads its module, and with it torch, when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atlas_engine.atlas import Atlas, open, predict
    from atlas_engine.cache import Cache
    from atlas_engine.data import ClassFolder, ImageLimits, Picture, read_folder, read_image, read_images
    from atlas_engine.data.support import Support
    from atlas_engine.errors import AtlasError
    from atlas_engine.prediction import Predictions

_HOMES = {
    "Atlas": "atlas",
    "AtlasError": "errors",
    "Cache": "cache",
    "ClassFolder": "data",
    "ImageLimits": "data",
    "Picture": "data",
    "Predictions": "prediction",
    "Support": "data.support",
    "open": "atlas",
    "predict": "atlas",
    "read_folder": "data",
    "read_image": "data",
    "read_images": "data",
}

__all__ = [
    "Atlas",
    "AtlasError",
    "Cache",
    "ClassFolder",
    "ImageLimits",
    "Picture",
    "Predictions",
    "Support",
    "open",
    "predict",
    "read_folder",
    "read_image",
    "read_images",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_engine' has no attribute '{name}'")
    return getattr(importlib.import_module(f"atlas_engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
