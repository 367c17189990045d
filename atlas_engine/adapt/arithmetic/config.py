"""Settings of task arithmetic: how coefficients are learned and searched."""

from __future__ import annotations

from dataclasses import dataclass

from atlas_engine.adapt.optimise import OptimiseConfig
from atlas_engine.config import Settings, setting

__all__ = ["AddConfig", "ArithmeticConfig", "NegateConfig"]


STEPS, SHARE, GRID = (
    "optimiser steps",
    "share of the tower's weights, from its end, whose λ is learned; 1 for all",
    "step between the coefficients of a scalar search",
)


@dataclass(frozen=True, kw_only=True)
class ArithmeticConfig(Settings):
    """Settings that negation and addition share."""

    steps: int = setting(30, help=STEPS, low=0, high=100_000)
    lr: float = setting(0.02, help="learning rate of the first step", low=0.0, high=100.0)
    weight_decay: float = setting(0.0, help="pull of the coefficients to zero", low=0.0)
    batch: int = setting(48, help="images per step, equally many of each task", low=1)
    views: int = setting(2, help="views of each image, made once and kept: itself, then random ones", low=1)
    share: float = setting(0.5, help=SHARE, low=0, high=1)
    held_out: float = setting(0.5, help="share of each class that is held out, to choose by", low=0, high=0.9)
    score_every: int = setting(5, help="steps between two scores on held-out images", low=1)
    grid: float = setting(0.05, help=GRID, low=0.001, high=1)
    deadline_seconds: float | None = setting(None, help="end the learning after this time", low=0.0)

    def loop(self, *, keep: str) -> OptimiseConfig:
        """The settings of the loop; `keep` is `best` where it is scored, else `last`."""
        return OptimiseConfig(
            steps=self.steps,
            lr=self.lr,
            weight_decay=self.weight_decay,
            keep=keep,
            score_every=self.score_every,
            deadline_seconds=self.deadline_seconds,
        )


@dataclass(frozen=True, kw_only=True)
class NegateConfig(ArithmeticConfig):
    """How a set of classes is forgotten."""

    keep: float = setting(0.95, help="share of the control's zero-shot accuracy to keep", low=0.0, high=1.0)
    enough: float = setting(
        1.5, help="an image is forgotten at this many times the loss of pure guessing", low=0.1
    )


@dataclass(frozen=True, kw_only=True)
class AddConfig(ArithmeticConfig):
    """How one model is made for several tasks. More of the tower moves, because tasks differ early in it."""

    steps: int = setting(40, help=STEPS, low=0, high=100_000)
    share: float = setting(0.9, help=SHARE, low=0, high=1)
    grid: float = setting(0.1, help=GRID, low=0.001, high=1)
    most: float = setting(1.0, help="largest coefficient of a scalar search", low=0.001, high=10.0)
