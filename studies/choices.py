"""Lists among the settings of a study: at least one item, and none twice. Knows nothing of any study."""

from __future__ import annotations

from atlas_engine.config import Settings
from atlas_engine.errors import ConfigError

__all__ = ["keep_once"]


def keep_once(settings: Settings, *names: str, in_order: bool = False) -> None:
    """Check these lists in `__post_init__`, and keep each item once: as given, or from small to large."""
    for name in names:
        given = getattr(settings, name)
        if not given:
            raise ConfigError(f"{type(settings).__name__}.{name} is empty but must have at least one.")
        once = dict.fromkeys(given)
        kept = tuple(sorted(once) if in_order else once)
        object.__setattr__(settings, name, kept)  # frozen: only here, before anyone has seen it
