"""Pictures at paths, read and guarded by the engine. Knows nothing of Gradio and nothing of HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import atlas_engine as atlas

__all__ = ["as_seen", "read_pictures"]

Key = TypeVar("Key")


def read_pictures(named: Iterable[tuple[Key, str]]) -> Iterator[tuple[Key, atlas.Image | str]]:
    """Each key with the picture at its path, or with the engine's sentence why it cannot be taken."""
    for key, path in named:
        try:
            yield key, atlas.read_image(path, name=Path(path).name)
        except atlas.AtlasError as error:
            yield key, str(error)


def as_seen(
    engine: atlas.Atlas,
    pictures: Sequence[atlas.Image],
    classes: Sequence[str],  # noqa: ARG001
) -> list[atlas.Image]:
    """Pictures as small as the model takes them: its answers stay the same, and a session can hold many."""
    if not pictures:
        return []
    squares = engine.pixels(pictures)  # (N 3 S S)
    return [
        atlas.Image(picture.name, square.permute(1, 2, 0).numpy())
        for picture, square in zip(pictures, squares, strict=True)
    ]
