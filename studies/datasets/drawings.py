"""Readers of the sets of drawings: emoji in three styles, clip art and stamps, by theme or by name.

A set by theme has classes to tell apart. In a set by name the class is a free description, so that many a
class has one image alone; such a set aligns a model's images with its words. A description is the name of a
folder too, and `display_name` gives it back unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from atlas_engine.data.folders import display_name
from studies.datasets.packages import read_member, read_members
from studies.datasets.readers import SetExample

__all__ = [
    "clip_art",
    "description",
    "emoji_fluent",
    "emoji_google",
    "emoji_twitter",
    "named_clip_art",
    "named_emoji",
    "named_stamps",
]

Entry = dict[str, Any]  # of an emoji, in the table of all

# Our class: the sub-categories of Unicode that belong to it.
EMOJI = {
    "aircraft": ("transport-air",),
    "arrow": ("arrow",),
    "bird": ("animal-bird",),
    "building": ("place-building", "place-religious"),
    "clock": ("time",),
    "clothing": ("clothing",),
    "colored shape": ("geometric",),
    "drink": ("drink",),
    "family": ("family",),
    "fantasy figure": ("person-fantasy",),
    "flag": ("country-flag", "flag", "subdivision-flag"),
    "fruit": ("food-fruit",),
    "hand": (
        "hand-fingers-closed",
        "hand-fingers-open",
        "hand-fingers-partial",
        "hand-single-finger",
        "hands",
    ),
    "heart": ("heart",),
    "household item": ("household",),
    "insect": ("animal-bug",),
    "letters and numbers": ("alphanum", "keycap"),
    "mammal": ("animal-mammal",),
    "meal": ("food-prepared", "food-asian"),
    "media button": ("av-symbol",),
    "musical instrument": ("musical-instrument",),
    "paper": ("book-paper", "mail"),
    "person at work": ("person-role",),
    "person doing sports": ("person-sport",),
    "person making a gesture": ("person-gesture",),
    "plant": ("plant-flower", "plant-other"),
    "road vehicle": ("transport-ground",),
    "sea animal": ("animal-marine",),
    "sky and weather": ("sky & weather",),
    "smiling face": ("face-smiling", "face-affection", "face-tongue"),
    "sports equipment": ("sport",),
    "sweets": ("food-sweet",),
    "tool": ("tool",),
    "unhappy face": ("face-concerned", "face-negative", "face-unwell"),
    "vegetable": ("food-vegetable",),
    "zodiac sign": ("zodiac",),
}

# Our class: the folders that belong to it.
CLIP_ART = {
    "pictogram": ("signs_and_symbols/map_symbols",),
    "arrow": ("shapes/arrows",),
    "bird": ("animals/birds", "animals/birds/penguin"),
    "boat": ("transportation/boating",),
    "clock": ("signs_and_symbols/clocks",),
    "clothing": ("people/clothing", "people/clothing/hats"),
    "computer hardware": ("computer/hardware",),
    "decorative pattern": ("special/patterns",),
    "dessert": ("food/desserts",),
    "dinosaur": ("animals/dinosaurs",),
    "drink": ("food/beverages", "food/beverages/alcohol"),
    "flag": tuple(f"signs_and_symbols/flags/{part}" for part in ("africa", "america", "asia", "europe")),
    "flower": ("plants/flowers",),
    "fruit": ("food/fruit",),
    "house": ("buildings/homes",),
    "insect": ("animals/bugs",),
    "jigsaw piece": ("shapes/jigsaw",),
    "mammal": (
        "animals/mammals",
        *(f"animals/mammals/{kind}" for kind in ("bears", "big_cats", "dogs", "horses", "housecats")),
    ),
    "map": ("geography",),
    "meat and eggs": ("food/meats_and_eggs",),
    "musical instrument": ("recreation/music",),
    "office supplies": ("office",),
    "party decoration": ("recreation/party",),
    "playing card": ("recreation/games/cards/white",),
    "road sign": ("transportation/roadsigns",),
    "sea animal": ("animals/fish",),
    "smiley": ("people/smilies",),
    "sports": ("recreation/sports",),
    "stick figure": ("people/stickmen",),
    "tool": ("tools",),
    "toy": ("recreation/toys",),
    "vehicle": ("transportation/vehicles",),
}

# Man, woman, person, what joins them, and the signs of sex: a role looks the same without them.
_SAME_ROLE = frozenset({"1F468", "1F469", "1F9D1", "200D", "2640", "2642", "FE0F"})


def emoji_google(archive: Path) -> Iterator[SetExample]:
    """Google's flat emoji at 64 px; skin tones are left out."""
    return _by_theme(_emoji_files(archive, archive, "package/img/google/64/", ".png"))


def emoji_twitter(archive: Path) -> Iterator[SetExample]:
    """Twitter's flat emoji at 64 px; skin tones are left out."""
    return _by_theme(_emoji_files(archive, archive, "package/img/twitter/64/", ".png"))


def emoji_fluent(archive: Path, names: Path) -> Iterator[SetExample]:
    """Microsoft's emoji as modelled and lit in 3D; `names` is a package that has the table of all emoji."""
    return _by_theme(_fluent_files(archive, names))


def _fluent_files(archive: Path, names: Path) -> Iterator[tuple[Entry, bytes]]:
    """Microsoft's emoji with their entries in the table; skin tones have no entries."""
    return _emoji_files(archive, names, "package/assets/", ".webp")


def _emoji_files(archive: Path, names: Path, folder: str, ending: str) -> Iterator[tuple[Entry, bytes]]:
    images = read_members(archive, rf"{re.escape(folder)}[0-9a-f-]+{re.escape(ending)}")
    for entry in json.loads(read_member(names, "package/emoji.json")):
        data = images.get(f"{folder}{entry['unified'].lower()}{ending}")
        if data is not None:
            yield entry, data


def _by_theme(files: Iterable[tuple[Entry, bytes]]) -> Iterator[SetExample]:
    class_of = {kind: label for label, kinds in EMOJI.items() for kind in kinds}
    for entry, data in files:
        label = class_of.get(entry["subcategory"])
        if label is not None:
            yield SetExample(label, _role(entry["unified"]), data)


def _role(codes: str) -> str:
    """What a man, a woman and a person in one role share: `2695` for the three health workers."""
    rest = [code for code in codes.split("-") if code not in _SAME_ROLE]
    return "-".join(rest) or codes


def clip_art(archive: Path) -> Iterator[SetExample]:
    """Clip art from many hands, by theme; a track is one drawing in its variants."""
    class_of = {folder: label for label, folders in CLIP_ART.items() for folder in folders}
    for folder, stem, data in _clip_art_files(archive, "|".join(map(re.escape, class_of))):
        yield SetExample(class_of[folder], _drawing(stem), data)


def _clip_art_files(archive: Path, wanted: str = ".+") -> Iterator[tuple[str, str, bytes]]:
    """Folder, file name without ending, and content of the clip art in the folders that match `wanted`."""
    root = "usr/share/openclipart/png/"
    for name, data in read_members(archive, rf"{root}(?:{wanted})/[^/]+\.png").items():
        folder, _, file = name.removeprefix(root).rpartition("/")
        yield folder, Path(file).stem, data


def _drawing(stem: str) -> str:
    """`cello_mo` of `cello_mo_02`; a playing card keeps its number, which is what it shows."""
    return stem if stem.startswith("white_") else re.sub(r"[_\d.]+r?$", "", stem) or stem


# ---- by name

MOST_BYTES = 200  # of a description: file systems take 255 in a name
MOST_TITLE = 60  # characters

# Categories of Unicode: a flag's name does not describe it, a component is no image of its own.
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


def named_emoji(archive: Path, names: Path) -> Iterator[SetExample]:
    """Microsoft's emoji in 3D, each by its own name; `names` is a package that has the table of all emoji."""
    for entry, data in _fluent_files(archive, names):
        label = description(entry.get("name") or entry["short_name"])
        if label and entry["category"] not in _EMOJI_WITHOUT:
            yield SetExample(label, entry["unified"], data)


def named_clip_art(archive: Path) -> Iterator[SetExample]:
    """Clip art from many hands, by title and theme: `alarm clock gerald, clocks`."""
    for path, stem, data in _clip_art_files(archive):
        folder = path.rpartition("/")[2]
        if folder in _CLIP_ART_WITHOUT:
            continue
        parts = (_title(stem), _THEMES.get(folder, _title(folder)))
        label = description(", ".join(filter(None, parts))[:MOST_TITLE])
        if label:
            yield SetExample(label, stem, data)


def named_stamps(archive: Path) -> Iterator[SetExample]:
    """Stamps of a drawing program for children: photographs and drawings, each with a sentence beside it."""
    files = read_members(archive, r"usr/share/tuxpaint/stamps/.+\.(?:png|txt)")
    for name, data in files.items():
        caption = files.get(f"{name.removesuffix('.png')}.txt")
        if not name.endswith(".png") or caption is None:
            continue
        first = caption.decode("utf-8", "replace").partition("\n")[0]
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
