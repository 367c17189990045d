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
    from atlas_engine.adapt.effects import VectorEffect
    from atlas_engine.adapt.image_check import ImageCheck
    from atlas_engine.adapt.methods import Method, list_methods
    from atlas_engine.adapt.settings import FewShotConfig, TestTimeConfig, effective_settings
    from atlas_engine.adapt.stream import Stream, StreamConfig
    from atlas_engine.cache import Cache
    from atlas_engine.calibration import Calibration
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
        read_dataset,
        read_folder,
        read_image,
        read_images,
        read_images_in,
        read_zip,
    )
    from atlas_engine.data.support import Support
    from atlas_engine.engine import Atlas, open, predict
    from atlas_engine.errors import AtlasError
    from atlas_engine.estimator import AtlasClassifier
    from atlas_engine.exporting.formats import available_formats
    from atlas_engine.library import SetupProgress, available_models, prepare
    from atlas_engine.predictions import Comparison, Predictions
    from atlas_engine.predictions_file import save_predictions
    from atlas_engine.recipe import Recipe
    from atlas_engine.result import AdaptResult, Advice, CurvePoint, Estimate, Outcome, Run, Step, Verdict
    from atlas_engine.sharing.repositories import load, push

_HOMES = {
    "AdaptResult": "result",
    "AddConfig": "adapt.arithmetic.config",
    "Advice": "result",
    "Atlas": "engine",
    "AtlasClassifier": "estimator",
    "AtlasError": "errors",
    "Cache": "cache",
    "Calibration": "calibration",
    "ClassFolder": "data",
    "Comparison": "predictions",
    "Contributions": "compose.contributions",
    "CurvePoint": "result",
    "Estimate": "result",
    "FewShotConfig": "adapt.settings",
    "ForgettingPoint": "adapt.arithmetic.forgetting",
    "Image": "data",
    "ImageCheck": "adapt.image_check",
    "ImageLimits": "data",
    "Method": "adapt.methods",
    "NegateConfig": "adapt.arithmetic.config",
    "Outcome": "result",
    "Predictions": "predictions",
    "Recipe": "recipe",
    "Residency": "bank.residency",
    "Run": "result",
    "SetupProgress": "library",
    "Step": "result",
    "Stream": "adapt.stream",
    "StreamConfig": "adapt.stream",
    "Support": "data.support",
    "TestTimeConfig": "adapt.settings",
    "VectorEffect": "adapt.effects",
    "Verdict": "result",
    "ZipLimits": "data",
    "available_formats": "exporting.formats",
    "available_models": "library",
    "contributions": "compose.contributions",
    "describe": "config",
    "effective_settings": "adapt.settings",
    "export": "compose.export",
    "find_templates": "clip.templates",
    "forgetting_curve": "adapt.arithmetic.forgetting",
    "list_methods": "adapt.methods",
    "list_templates": "clip.templates",
    "load": "sharing.repositories",
    "natural_key": "data",
    "open": "engine",
    "predict": "engine",
    "prepare": "library",
    "push": "sharing.repositories",
    "read_dataset": "data",
    "read_folder": "data",
    "read_image": "data",
    "read_images": "data",
    "read_images_in": "data",
    "read_zip": "data",
    "save_predictions": "predictions_file",
    "scale_recipe": "adapt.arithmetic.forgetting",
    "tidy_name": "class_names",
}

__all__ = [
    "AdaptResult",
    "AddConfig",
    "Advice",
    "Atlas",
    "AtlasClassifier",
    "AtlasError",
    "Cache",
    "Calibration",
    "ClassFolder",
    "Comparison",
    "Contributions",
    "CurvePoint",
    "Estimate",
    "FewShotConfig",
    "ForgettingPoint",
    "Image",
    "ImageCheck",
    "ImageLimits",
    "Method",
    "NegateConfig",
    "Outcome",
    "Predictions",
    "Recipe",
    "Residency",
    "Run",
    "SetupProgress",
    "Step",
    "Stream",
    "StreamConfig",
    "Support",
    "TestTimeConfig",
    "VectorEffect",
    "Verdict",
    "ZipLimits",
    "available_formats",
    "available_models",
    "contributions",
    "describe",
    "effective_settings",
    "export",
    "find_templates",
    "forgetting_curve",
    "list_methods",
    "list_templates",
    "load",
    "natural_key",
    "open",
    "predict",
    "prepare",
    "push",
    "read_dataset",
    "read_folder",
    "read_image",
    "read_images",
    "read_images_in",
    "read_zip",
    "save_predictions",
    "scale_recipe",
    "tidy_name",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a module attribute can be anything
    if name not in _HOMES:
        raise AttributeError(f"module 'atlas_engine' has no attribute '{name}'")
    return getattr(importlib.import_module(f"atlas_engine.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
