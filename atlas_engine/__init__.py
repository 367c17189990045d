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
    from atlas_engine.adapt.few_shot import FewShotConfig
    from atlas_engine.adapt.run import Run
    from atlas_engine.atlas import Atlas, open, predict
    from atlas_engine.cache import Cache
    from atlas_engine.compose.contributions import Contributions, contributions
    from atlas_engine.compose.export import export
    from atlas_engine.config import describe
    from atlas_engine.data import (
        ClassFolder,
        ImageLimits,
        Picture,
        ZipLimits,
        natural_key,
        read_folder,
        read_image,
        read_images,
        read_zip,
    )
    from atlas_engine.data.support import Support
    from atlas_engine.errors import AtlasError
    from atlas_engine.prediction import Comparison, Predictions
    from atlas_engine.recipe import Recipe
    from atlas_engine.result import AdaptResult, Estimate, Step, Verdict

_HOMES = {
    "AdaptResult": "result",
    "Atlas": "atlas",
    "AtlasError": "errors",
    "Cache": "cache",
    "ClassFolder": "data",
    "Comparison": "prediction",
    "Contributions": "compose.contributions",
    "Estimate": "result",
    "FewShotConfig": "adapt.few_shot",
    "ImageLimits": "data",
    "Picture": "data",
    "Predictions": "prediction",
    "Recipe": "recipe",
    "Run": "adapt.run",
    "Step": "result",
    "Support": "data.support",
    "Verdict": "result",
    "ZipLimits": "data",
    "contributions": "compose.contributions",
    "describe": "config",
    "export": "compose.export",
    "natural_key": "data",
    "open": "atlas",
    "predict": "atlas",
    "read_folder": "data",
    "read_image": "data",
    "read_images": "data",
    "read_zip": "data",
}

__all__ = [
    "AdaptResult",
    "Atlas",
    "AtlasError",
    "Cache",
    "ClassFolder",
    "Comparison",
    "Contributions",
    "Estimate",
    "FewShotConfig",
    "ImageLimits",
    "Picture",
    "Predictions",
    "Recipe",
    "Run",
    "Step",
    "Support",
    "Verdict",
    "ZipLimits",
    "contributions",
    "describe",
    "export",
    "natural_key",
    "open",
    "predict",
    "read_folder",
    "read_image",
    "read_images",
    "read_zip",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_engine' has no attribute '{name}'")
    return getattr(importlib.import_module(f"atlas_engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
