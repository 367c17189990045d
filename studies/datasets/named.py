"""Sets whose class is a free description: emoji, clip art, stamps. Knows nothing of pixels.

They are for aligning a model's pictures with its words, so that many a class has one picture alone. A
description is the name of a folder too, and says the same there: `display_name` gives it back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from atlas_engine.data.folders import display_name
from studies.datasets.archives import read_members
from studies.datasets.drawings import clip_art_files, fluent_files
from studies.datasets.example import SetExample

__all__ = ["clip_art", "description", "emoji", "stamps"]

MOST_BYTES = 200  # of a description: file systems take 255 in a name
MOST_TITLE = 60  # characters

# Categories of Unicode: a flag's name tells nothing that is seen, a component is no picture of its own.
_EMOJI_WITHOUT = ("Flags", "Component")

# Folders whose titles do not describe, or hundreds of which look alike.
_CLIP_ART_WITHOUT = frozenset(
    (
        *("action", "actions", "applications", "apps", "devices", "emblems", "icons", "mimetypes", "places"),
        *("africa", "america", "asia", "europe", "signs_and_symbols", "aiga-symbols"),
        *("decorations", "jigsaw", "stars"),
    )
)
# Folders that are called otherwise in a description, or not at all.
_THEMES = {
    **dict.fromkeys(("bordered", "ornamental", "simple", "white"), "playing cards"),
    **dict.fromkeys(("duplicates", "special", "unsorted"), ""),
}

_UNSAFE = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]+')  # in the names of folders, on one system or another


def emoji(archive: Path, names: Path) -> Iterator[SetExample]:
    """Microsoft's emoji in 3D, each by its own name; `names` is a package that has the table of all emoji."""
    for entry, data in fluent_files(archive, names):
        label = description(entry.get("name") or entry["short_name"])
        if label and entry["category"] not in _EMOJI_WITHOUT:
            yield SetExample(label, entry["unified"], data)


def clip_art(archive: Path) -> Iterator[SetExample]:
    """Clip art from many hands, by title and theme: `alarm clock gerald, clocks`."""
    for path, stem, data in clip_art_files(archive):
        folder = path.rpartition("/")[2]
        if folder in _CLIP_ART_WITHOUT:
            continue
        parts = (_title(stem), _THEMES.get(folder, _title(folder)))
        label = description(", ".join(filter(None, parts))[:MOST_TITLE])
        if label:
            yield SetExample(label, stem, data)


def stamps(archive: Path) -> Iterator[SetExample]:
    """Stamps of a drawing program for children: photographs and drawings, each with a sentence beside it."""
    files = read_members(archive, r"usr/share/tuxpaint/stamps/.+\.(?:png|txt)")
    for name, data in files.items():
        beside = files.get(f"{name.removesuffix('.png')}.txt")
        if not name.endswith(".png") or beside is None:
            continue
        first = beside.decode("utf-8", "replace").partition("\n")[0]
        label = description(first.strip().removesuffix("."))
        if label:
            yield SetExample(label, Path(name).stem, data)


def description(text: str) -> str:
    """The text in lower case, as every system takes it for a folder's name; perhaps nothing is left of it.

    >>> description("A telephone.  Hello? Hello?")
    'a telephone. hello hello'
    """
    clean = display_name(_UNSAFE.sub(" ", text).lower())
    short = clean.encode("utf-8", "ignore")[:MOST_BYTES].decode("utf-8", "ignore")
    return short.lstrip(". ").rstrip(". ")


def _title(stem: str) -> str:
    """`cello` of `cello_mo_02`: no word of fewer than three letters, no number at the end."""
    words = re.split(r"[^\w']+|_+", stem.lower())
    kept = [word for word in words if sum(map(str.isalpha, word)) >= 3]
    return " ".join(kept).rstrip("0123456789")
