"""The settings of a run: those that a user gives, and the method's own for all that the user leaves open.

    config = FewShotConfig(lr=0.05)                                # the other numbers are the method's own
    effective_few_shot_config(config, FEW_SHOT_METHODS["paper"], images=64).batch          # 128
    effective_settings("paper").lr                                 # 0.1: what the method has by itself

A config has None where a method may have a value of its own, and a value that is given always counts, even
one that most methods have anyway. A run resolves its config once, and its recipe records the outcome.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from atlas_engine.adapt.methods import Method, find_method
from atlas_engine.adapt.optimise import LoopControls, OptimiseConfig
from atlas_engine.config import Settings, describe, setting
from atlas_engine.objectives.registry import find_objective

__all__ = [
    "FewShotConfig",
    "FewShotRunSettings",
    "TestTimeConfig",
    "TestTimeRunSettings",
    "batches_per_epoch",
    "effective_few_shot_config",
    "effective_settings",
    "effective_test_time_config",
]

FEWEST_BATCHES = 10  # per epoch (aTLAS, section 5)
SHARE = "share of the tower's weights, from its end, that may move; 1 for all"

RunSettings = TypeVar("RunSettings", bound=OptimiseConfig)


def _own(settings: type[Settings], name: str) -> Any:  # noqa: ANN401 - the default None of any optional field
    """The same setting with None as its default, which stands for the method's own value."""
    rule = next(rule for rule in describe(settings) if rule.name == name)
    unset = f"the method's own, {rule.default} for most"
    return setting(None, help=rule.help, low=rule.low, high=rule.high, unset=unset)


# ---- few-shot


@dataclass(frozen=True, kw_only=True)
class FewShotRunSettings(OptimiseConfig):
    """The settings of a few-shot run with every value known; the defaults are those of most methods."""

    steps: int = setting(24, help="optimiser steps", low=0, high=100_000)
    lr: float = setting(0.05, help="learning rate of the first step", low=0.0, high=100.0)
    epochs: int = setting(0, help="passes over the images; 0: as many as the steps make", low=0)
    batch: int = setting(16, help="images per step; all of them where there are fewer", low=1)
    views: int = setting(6, help="random views of each image, made once and kept", low=1, high=1000)
    share: float = setting(0.5, help=SHARE, low=0.0, high=1.0)
    folds: int = setting(4, help="most folds that the images are held out in, one at a time", low=2, high=64)


@dataclass(frozen=True, kw_only=True)
class FewShotConfig(LoopControls):
    """How coefficients are learned from a few labelled images; None stands for the method's own value."""

    steps: int | None = _own(FewShotRunSettings, "steps")
    lr: float | None = _own(FewShotRunSettings, "lr")
    weight_decay: float | None = _own(FewShotRunSettings, "weight_decay")
    epochs: int | None = _own(FewShotRunSettings, "epochs")
    batch: int | None = _own(FewShotRunSettings, "batch")
    share: float | None = _own(FewShotRunSettings, "share")
    views: int | None = _own(FewShotRunSettings, "views")
    folds: int | None = _own(FewShotRunSettings, "folds")
    sharpness: float | None = _own(FewShotRunSettings, "sharpness")


def effective_few_shot_config(config: FewShotConfig, method: Method, *, images: int) -> FewShotRunSettings:
    """The settings of a run: as given, else the method's own, with steps enough for its epochs.

    Steps that are given count. With epochs, an epoch has at least ten batches, as in the paper, so a small
    support is repeated within it.
    """
    run = _resolve(FewShotRunSettings, config, method.settings, {"share": method.share})
    if run.epochs and config.steps is None:
        run = replace(run, steps=run.epochs * batches_per_epoch(run.batch, images=images))
    return run


def batches_per_epoch(batch: int, *, images: int) -> int:
    """The number of batches in an epoch of the paper, at least ten."""
    return max(FEWEST_BATCHES, math.ceil(images / batch))


# ---- without labels


@dataclass(frozen=True, kw_only=True)
class TestTimeRunSettings(OptimiseConfig):
    """The settings of a run without labels with every value known; the defaults are those of most methods."""

    __test__ = False  # pytest takes a class of this name for a test

    steps: int = setting(16, help="optimiser steps, or more where the epochs need more", low=0, high=100_000)
    lr: float = setting(0.02, help="learning rate of the first step", low=0.0, high=100.0)
    epochs: int = setting(5, help="passes over the images, at least", low=0, high=1000)
    batch: int = setting(32, help="images per step; all of them where there are fewer", low=1)
    views: int = setting(2, help="weak and strong views of each image, made once and kept", low=1, high=1000)
    share: float = setting(0.5, help=SHARE, low=0.0, high=1.0)


@dataclass(frozen=True, kw_only=True)
class TestTimeConfig(LoopControls):
    """How coefficients are learned without labels; None stands for the method's own value."""

    __test__ = False  # pytest takes a class of this name for a test

    steps: int | None = _own(TestTimeRunSettings, "steps")
    lr: float | None = _own(TestTimeRunSettings, "lr")
    weight_decay: float | None = _own(TestTimeRunSettings, "weight_decay")
    epochs: int | None = _own(TestTimeRunSettings, "epochs")
    batch: int | None = _own(TestTimeRunSettings, "batch")
    share: float | None = _own(TestTimeRunSettings, "share")
    views: int | None = _own(TestTimeRunSettings, "views")
    sharpness: float | None = _own(TestTimeRunSettings, "sharpness")


def effective_test_time_config(config: TestTimeConfig, method: Method, *, images: int) -> TestTimeRunSettings:
    """The settings of a run: as given, else the method's own, else its objective's, with steps enough.

    Five epochs of 100 images in batches of 32 are 16 steps; of 1,000 images they are 157. An epoch of a
    published method has at least ten batches, as in the paper. With 0 steps, nothing is learned whatever the
    epochs.
    """
    objective = find_objective(method.objective).loop_defaults if method.objective else {}
    run = _resolve(TestTimeRunSettings, config, method.settings, {**objective, "share": method.share})
    if not run.steps or method.objective is None:
        return run
    if method.fresh_views and config.steps is None:
        return replace(run, steps=run.epochs * batches_per_epoch(run.batch, images=images))
    batch = max(1, min(run.batch, images))
    return replace(run, steps=max(run.steps, math.ceil(run.epochs * images / batch)))


# ---- both


def effective_settings(
    method: str, *, task: str = "few-shot", images: int = 1
) -> FewShotRunSettings | TestTimeRunSettings:
    """The settings that a method has by itself, for "few-shot" or "test-time" and so many images.

    `lr` is the number that a config would give for the same run; a method may scale it (`Method.lr_scale`).
    """
    row = find_method(task, method)
    if task == "few-shot":
        return effective_few_shot_config(FewShotConfig(), row, images=images)
    return effective_test_time_config(TestTimeConfig(), row, images=images)


def _resolve(settings: type[RunSettings], config: LoopControls, *own: Mapping[str, Any]) -> RunSettings:
    """Each setting as given in the config, else from the first of `own` that has it, else its default."""
    values: dict[str, Any] = {}
    for mapping in (*reversed(own), config.as_dict()):
        values |= {name: value for name, value in mapping.items() if value is not None}
    return settings.from_dict(values)
