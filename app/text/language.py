"""The language of the page: every sentence goes through `say`, and a translation is one file beside this one.

    say("{count} images", count=3)           "3 images", or "3 Bilder" where the page is German

`de.json` maps each English sentence of this package to a German one with the same {names}. The language is
chosen when the app starts, with ATLAS_LANGUAGE; a sentence that a translation lacks stays English. What the
engine itself says of bad input is English in every language.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path

__all__ = ["ENGLISH", "LANGUAGE", "VARIABLE", "available_languages", "catalogue", "say"]

VARIABLE = "ATLAS_LANGUAGE"
ENGLISH = "en"
FOLDER = Path(__file__).parent


def available_languages() -> tuple[str, ...]:
    """English, then those that have a file here."""
    return (ENGLISH, *sorted(path.stem for path in FOLDER.glob("*.json")))


@cache
def catalogue(language: str) -> dict[str, str]:
    """The translations of a language by their English sentence; empty for English and unknown ones."""
    file = FOLDER / f"{language}.json"
    if language not in available_languages() or language == ENGLISH:
        return {}
    found: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return found


LANGUAGE = os.environ.get(VARIABLE, "").strip().lower()[:2] or ENGLISH
"""The language that this process speaks."""


def say(sentence: str, /, **values: object) -> str:
    """The sentence in the page's language, with the values in place of its {names}, if any are given."""
    words = catalogue(LANGUAGE).get(sentence, sentence)
    return words.format(**values) if values else words
