"""Class names as people write them, in any script.

Two invisible characters belong to ordinary words: the zero-width non-joiner keeps Persian letters apart, and
the zero-width joiner joins emoji. Other invisible characters, such as soft hyphens and direction marks, come
along when text is copied, and are dropped.
"""

from __future__ import annotations

import unicodedata

__all__ = ["MAX_CLASS_NAME", "NONE_OF_THESE", "is_legible", "tidy_name"]

NONE_OF_THESE = "none of these"
"""What a rejected image is called. A class of this name holds negatives: images of none of the others."""
MAX_CLASS_NAME = 200  # characters: a longer one is a sentence, or an accident

JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner
FORMAT = "Cf"  # Unicode's category of invisible format characters


def tidy_name(name: str) -> str:
    """The name without outer and double blanks, and without invisible characters other than joiners.

    >>> tidy_name("  sea \\u00adlion ")
    'sea lion'
    """
    visible = (char for char in name if char in JOINERS or unicodedata.category(char) != FORMAT)
    return " ".join("".join(visible).split()).strip(JOINERS)


def is_legible(text: str) -> bool:
    """Whether every character is printable or a joiner; control characters are neither.

    >>> is_legible("می\\u200cخواهم"), is_legible("\\x1b[2J")
    (True, False)
    """
    return all(char.isprintable() or char in JOINERS for char in text)
