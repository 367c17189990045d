"""The ways to adapt without labels: a new one is a row here. Knows nothing of runs or pictures."""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple

from atlas_engine.adapt.validate import ZERO_SHOT
from atlas_engine.bank.blocks import KINDS
from atlas_engine.compose.coefficients import Layout
from atlas_engine.errors import ConfigError, unknown_name

__all__ = ["AUTO", "CAREFUL", "METHODS", "NORMS", "WANTED", "ZERO_SHOT", "Method", "find_test_method"]

AUTO = "auto"


class Method(NamedTuple):
    """A way to adapt without labels: what moves the coefficients, and which head is made afterwards."""

    objective: str | None
    head: str = "none"
    kinds: tuple[str, ...] = KINDS  # of blocks that move
    layout: Layout = Layout()
    stride: float = 1.0  # times the learning rate


_SURE = Method("entropy", "balanced", kinds=("norm",), layout=Layout(partitions=20), stride=50.0)

METHODS = MappingProxyType(
    {
        ZERO_SHOT: Method(None),
        "anchored": Method(None, "anchored"),
        "balanced": Method(None, "balanced"),
        "proportioned": Method(None, "proportioned"),
        "entropy+balanced": _SURE,
        "entropy+proportioned": _SURE._replace(objective="in-proportion", head="proportioned"),
        "ufm": Method("ufm"),
        "entropy": Method("entropy"),
        "sar": Method("sar"),
        "simclr": Method("simclr"),
    }
)
NORMS = ("ln-ufm", "ln-entropy", "ln-sar", "ln-simclr")
"""Baselines: the same objectives over the norm layers. They are no recipes of coefficients."""

WANTED, CAREFUL = "entropy+balanced", "entropy+proportioned"
"""What `auto` does where all classes seem to be among the pictures, and where they do not. They move the same
blocks in the same way, so that which of them it is may be seen later."""


def find_test_method(name: str) -> Method:
    """The method of that name, what `auto` wants for `auto`, or an error that says what to do."""
    if name in NORMS:
        raise ConfigError(
            f"{name} tunes norm layers, which no recipe of coefficients can hold. Call test_time_norms for "
            f"its answers, or choose '{name.removeprefix('ln-')}'."
        )
    if name != AUTO and name not in METHODS:
        raise ConfigError(unknown_name("objective", name, (*METHODS, AUTO)))
    return METHODS[WANTED if name == AUTO else name]
