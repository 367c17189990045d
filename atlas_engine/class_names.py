"""Class names as people write them, in any script. Knows nothing of what they are for.

Two characters that nobody sees belong to ordinary words: one keeps Persian letters apart, the other joins
emoji. All others, as a soft hyphen or a mark of direction, come along when text is copied, and are dropped.
"""

from __future__ import annotations

import unicodedata

__all__ = ["is_legible", "tidy_name"]

JOINERS = "\u200c\u200d"  # zero-width non-joiner and joiner
UNSEEN = "Cf"  # Unicode's category of format characters


def tidy_name(name: str) -> str:
    """The name without outer and double blanks and without characters that nobody sees, but for joiners.

    >>> tidy_name("  sea \\u00adlion ")
    'sea lion'
    """
    seen = "".join(letter for letter in name if letter in JOINERS or unicodedata.category(letter) != UNSEEN)
    return " ".join(seen.split()).strip(JOINERS)


def is_legible(text: str) -> bool:
    """Whether it holds nothing but what can be shown, joiners included; no control characters.

    >>> is_legible("می\\u200cخواهم"), is_legible("\\x1b[2J")
    (True, False)
    """
    return all(letter.isprintable() or letter in JOINERS for letter in text)
