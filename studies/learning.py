"""Settings of all that learns in a study; what is not given is the product's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from atlas_engine.config import Settings, setting

__all__ = ["PRODUCT", "LearningSettings"]

PRODUCT = "the product's own"


@dataclass(frozen=True, kw_only=True)
class LearningSettings(Settings):
    """How much, how fast and where all that trains may learn."""

    steps: int | None = setting(None, help="optimiser steps of all that train", low=1, unset=PRODUCT)
    batch: int | None = setting(None, help="images a step", low=1, unset=PRODUCT)
    lr: float | None = setting(None, help="learning rate of the first step", low=0.0, unset=PRODUCT)
    weight_decay: float | None = setting(
        None, help="pull of the coefficients to zero", low=0.0, unset=PRODUCT
    )
    epochs: int | None = setting(None, help="passes over the images", low=0, unset=PRODUCT)
    share: float | None = setting(
        None, help="share of the tower that task vectors may move", low=0.0, high=1.0, unset=PRODUCT
    )
    views: int | None = setting(None, help="random views kept of each image", low=1, unset=PRODUCT)

    def given(self) -> dict[str, Any]:
        """The values that are given, by name."""
        names = ("steps", "batch", "lr", "weight_decay", "epochs", "share", "views")
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}
