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
    from atlas_engine.adapt.test_time import TestTimeConfig
    from atlas_engine.arithmetic.config import AddConfig, NegateConfig
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
        read_flat,
        read_folder,
        read_image,
        read_images,
        read_zip,
    )
    from atlas_engine.data.support import Support
    from atlas_engine.errors import AtlasError
    from atlas_engine.fetching import Preparing, offers, prepare
    from atlas_engine.forgetting import Forgotten, forgotten, weakened
    from atlas_engine.names import tidy_name
    from atlas_engine.prediction import Comparison, Predictions
    from atlas_engine.recipe import Recipe
    from atlas_engine.result import AdaptResult, Estimate, Step, Verdict
    from atlas_engine.streaming import Stream, StreamConfig

_HOMES = {
    "AdaptResult": "result",
    "AddConfig": "arithmetic.config",
    "Atlas": "atlas",
    "AtlasError": "errors",
    "Cache": "cache",
    "ClassFolder": "data",
    "Comparison": "prediction",
    "Contributions": "compose.contributions",
    "Estimate": "result",
    "FewShotConfig": "adapt.few_shot",
    "Forgotten": "forgetting",
    "ImageLimits": "data",
    "NegateConfig": "arithmetic.config",
    "Picture": "data",
    "Predictions": "prediction",
    "Preparing": "fetching",
    "Recipe": "recipe",
    "Run": "adapt.run",
    "Step": "result",
    "Stream": "streaming",
    "StreamConfig": "streaming",
    "Support": "data.support",
    "TestTimeConfig": "adapt.test_time",
    "Verdict": "result",
    "ZipLimits": "data",
    "contributions": "compose.contributions",
    "describe": "config",
    "export": "compose.export",
    "forgotten": "forgetting",
    "natural_key": "data",
    "offers": "fetching",
    "open": "atlas",
    "predict": "atlas",
    "prepare": "fetching",
    "read_flat": "data",
    "read_folder": "data",
    "read_image": "data",
    "read_images": "data",
    "read_zip": "data",
    "tidy_name": "names",
    "weakened": "forgetting",
}

__all__ = [
    "AdaptResult",
    "AddConfig",
    "Atlas",
    "AtlasError",
    "Cache",
    "ClassFolder",
    "Comparison",
    "Contributions",
    "Estimate",
    "FewShotConfig",
    "Forgotten",
    "ImageLimits",
    "NegateConfig",
    "Picture",
    "Predictions",
    "Preparing",
    "Recipe",
    "Run",
    "Step",
    "Stream",
    "StreamConfig",
    "Support",
    "TestTimeConfig",
    "Verdict",
    "ZipLimits",
    "contributions",
    "describe",
    "export",
    "forgotten",
    "natural_key",
    "offers",
    "open",
    "predict",
    "prepare",
    "read_flat",
    "read_folder",
    "read_image",
    "read_images",
    "read_zip",
    "tidy_name",
    "weakened",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_engine' has no attribute '{name}'")
    return getattr(importlib.import_module(f"atlas_engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
