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
    from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
    from atlas_engine.adapt.arithmetic.forgetting import ForgettingPoint, forgetting_curve, scale_recipe
    from atlas_engine.adapt.few_shot import FewShotConfig
    from atlas_engine.adapt.methods import Method, list_methods
    from atlas_engine.adapt.stream import Stream, StreamConfig
    from atlas_engine.adapt.unlabelled import TestTimeConfig
    from atlas_engine.cache import Cache
    from atlas_engine.class_names import tidy_name
    from atlas_engine.clip.templates import find_templates, list_templates
    from atlas_engine.compose.contributions import Contributions, contributions
    from atlas_engine.compose.export import export
    from atlas_engine.config import describe
    from atlas_engine.data import (
        ClassFolder,
        Image,
        ImageLimits,
        ZipLimits,
        natural_key,
        read_folder,
        read_image,
        read_images,
        read_images_in,
        read_zip,
    )
    from atlas_engine.data.support import Support
    from atlas_engine.engine import Atlas, open, predict
    from atlas_engine.errors import AtlasError
    from atlas_engine.library import SetupProgress, available_models, prepare
    from atlas_engine.predictions import Comparison, Predictions
    from atlas_engine.recipe import Recipe
    from atlas_engine.result import AdaptResult, Estimate, Run, Step, Verdict

_HOMES = {
    "AdaptResult": "result",
    "AddConfig": "adapt.arithmetic.config",
    "Atlas": "engine",
    "AtlasError": "errors",
    "Cache": "cache",
    "ClassFolder": "data",
    "Comparison": "predictions",
    "Contributions": "compose.contributions",
    "Estimate": "result",
    "FewShotConfig": "adapt.few_shot",
    "ForgettingPoint": "adapt.arithmetic.forgetting",
    "Image": "data",
    "ImageLimits": "data",
    "Method": "adapt.methods",
    "NegateConfig": "adapt.arithmetic.config",
    "Predictions": "predictions",
    "Recipe": "recipe",
    "Run": "result",
    "SetupProgress": "library",
    "Step": "result",
    "Stream": "adapt.stream",
    "StreamConfig": "adapt.stream",
    "Support": "data.support",
    "TestTimeConfig": "adapt.unlabelled",
    "Verdict": "result",
    "ZipLimits": "data",
    "available_models": "library",
    "contributions": "compose.contributions",
    "describe": "config",
    "export": "compose.export",
    "find_templates": "clip.templates",
    "forgetting_curve": "adapt.arithmetic.forgetting",
    "list_methods": "adapt.methods",
    "list_templates": "clip.templates",
    "natural_key": "data",
    "open": "engine",
    "predict": "engine",
    "prepare": "library",
    "read_folder": "data",
    "read_image": "data",
    "read_images": "data",
    "read_images_in": "data",
    "read_zip": "data",
    "scale_recipe": "adapt.arithmetic.forgetting",
    "tidy_name": "class_names",
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
    "ForgettingPoint",
    "Image",
    "ImageLimits",
    "Method",
    "NegateConfig",
    "Predictions",
    "Recipe",
    "Run",
    "SetupProgress",
    "Step",
    "Stream",
    "StreamConfig",
    "Support",
    "TestTimeConfig",
    "Verdict",
    "ZipLimits",
    "available_models",
    "contributions",
    "describe",
    "export",
    "find_templates",
    "forgetting_curve",
    "list_methods",
    "list_templates",
    "natural_key",
    "open",
    "predict",
    "prepare",
    "read_folder",
    "read_image",
    "read_images",
    "read_images_in",
    "read_zip",
    "scale_recipe",
    "tidy_name",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_engine' has no attribute '{name}'")
    return getattr(importlib.import_module(f"atlas_engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
