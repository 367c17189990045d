"""The ways to adapt without labels: a new one is a row here. Knows nothing of runs or pictures."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from atlas_engine.adapt.verdict import ZERO_SHOT
from atlas_engine.bank.blocks import BLOCK_KINDS
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import ConfigError, unknown_name

__all__ = [
    "AUTO",
    "CAREFUL",
    "NORM_BASELINES",
    "UNLABELLED_METHODS",
    "WANTED",
    "ZERO_SHOT",
    "UnlabelledMethod",
    "find_unlabelled_method",
]

AUTO = "auto"


class UnlabelledMethod(NamedTuple):
    """A way to adapt without labels: what moves the coefficients, and which head is made afterwards."""

    objective: str | None
    head: str = "none"
    kinds: tuple[str, ...] = BLOCK_KINDS  # of blocks that move
    layout: Layout = Layout()
    stride: float = 1.0  # times the learning rate


_SURE = UnlabelledMethod("entropy", "balanced", kinds=("norm",), layout=Layout(partitions=20), stride=50.0)

UNLABELLED_METHODS = MappingProxyType(
    {
        ZERO_SHOT: UnlabelledMethod(None),
        "anchored": UnlabelledMethod(None, "anchored"),
        "balanced": UnlabelledMethod(None, "balanced"),
        "proportioned": UnlabelledMethod(None, "proportioned"),
        "entropy+balanced": _SURE,
        "entropy+proportioned": _SURE._replace(objective="in-proportion", head="proportioned"),
        "ufm": UnlabelledMethod("ufm"),
        "entropy": UnlabelledMethod("entropy"),
        "sar": UnlabelledMethod("sar"),
        "simclr": UnlabelledMethod("simclr"),
    }
)
NORM_BASELINES = ("ln-ufm", "ln-entropy", "ln-sar", "ln-simclr")
"""Baselines: the same objectives over the norm layers. They are no recipes of coefficients."""

WANTED, CAREFUL = "entropy+balanced", "entropy+proportioned"
"""What `auto` does where all classes seem to be among the pictures, and where they do not. They move the same
blocks in the same way, so that which of them it is may be seen later."""


def find_unlabelled_method(name: str) -> UnlabelledMethod:
    """The method of that name, what `auto` wants for `auto`, or an error that says what to do."""
    if name in NORM_BASELINES:
        raise ConfigError(
            f"{name} tunes norm layers, which no recipe of coefficients can hold. Call test_time_norms for "
            f"its answers, or choose '{name.removeprefix('ln-')}'."
        )
    if name != AUTO and name not in UNLABELLED_METHODS:
        raise ConfigError(unknown_name("objective", name, (*UNLABELLED_METHODS, AUTO)))
    return UNLABELLED_METHODS[WANTED if name == AUTO else name]
