"""Two models side by side, picture by picture, as HTML. Pure; everything from outside is escaped.

The pictures that have another answer come first: fixed, broken, changed, then the rest, closed where there
are many. A word says which, so that nothing depends on colour.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

import atlas_engine as atlas
from app import text
from app.handlers.lesson import LabelledImage
from app.markup import as_table, file_address, guess_list, note
from atlas_engine.views.comparison import changes, confusion_grid
from atlas_engine.views.heatmap import PHONE, Grid, heat_map

__all__ = ["compare_html", "pairs_html"]

TOP = 3
AT_FIRST = 12  # pictures in sight, besides those that have another answer now
FEW = 5  # classes whose two maps fit beside each other
CONFUSION_WIDTH, CONFUSION_WIDTH_OF_FEW = 560, 370  # pixels


def compare_html(
    comparison: atlas.Comparison | None, samples: Sequence[LabelledImage], *, remark: str = ""
) -> str:
    """The samples by zero-shot and adapted, how many changed, and which classes are taken for which."""
    if comparison is None:
        return note(text.NO_SAMPLES)
    truth = [sample.truth for sample in samples]
    told = "".join(
        note(words) for words in (remark, text.SIDES_NOTE, *_summaries(comparison, truth)) if words
    )
    cards = pairs_html(comparison, samples, names=(text.ZERO_SHOT, text.ADAPTED))
    confusion = _confusion(comparison, truth) if any(truth) else ""
    return f"<div class='at-compare'>{told}{cards}{confusion}</div>"


def pairs_html(
    comparison: atlas.Comparison, samples: Sequence[LabelledImage], *, names: tuple[str, str], top: int = TOP
) -> str:
    """A card a picture with both rankings, under these two names."""
    truth = [sample.truth for sample in samples]
    what = {change.index: change.what for change in changes(comparison, truth)}
    order = [*what, *(index for index in range(len(comparison)) if index not in what)]
    before, after = comparison.zero_shot.top(top), comparison.adapted.top(top)
    cards = [
        _pair(samples[i], what.get(i, "same"), (names[0], before[i]), (names[1], after[i])) for i in order
    ]
    first = max(len(what), AT_FIRST)
    return _grid(cards[:first]) + _closed(cards[first:])


def _grid(cards: Sequence[str]) -> str:
    return f"<div class='at-pairs'>{''.join(cards)}</div>"


def _closed(cards: Sequence[str]) -> str:
    """Cards that are not worth a look at first."""
    summary = f"<summary>{escape(text.more_the_same(len(cards)))}</summary>"
    return f"<details>{summary}{_grid(cards)}</details>" if cards else ""


def _pair(sample: LabelledImage, what: str, *sides: tuple[str, Sequence[tuple[str, float]]]) -> str:
    alt = escape(text.picture_alt(sample.picture.name))
    caption = text.truth_caption(sample.truth) if sample.truth else sample.picture.name
    columns = "".join(
        f"<div class='at-side'><h3>{escape(name)}{_mark(guesses, sample.truth)}</h3>"
        f"{guess_list(guesses)}</div>"
        for name, guesses in sides
    )
    badge = f"<span class='at-badge at-{what}'>{escape(text.CHANGED_NOTES[what])}</span>"
    return (
        f"<article class='at-pair'><figure>{badge}<img src='{file_address(sample.path)}' alt='{alt}'>"
        f"<figcaption>{escape(caption)}</figcaption></figure>{columns}</article>"
    )


def _mark(guesses: Sequence[tuple[str, float]], truth: str | None) -> str:
    if truth is None:
        return ""
    said = text.RIGHT if guesses[0][0] == truth else text.WRONG
    return f" <span class='at-mark at-{said}'>{escape(said)}</span>"


def _summaries(comparison: atlas.Comparison, truth: Sequence[str | None]) -> tuple[str, ...]:
    known = sum(one is not None for one in truth)
    fixed, broken = len(comparison.fixed(truth)), len(comparison.broken(truth))
    changed = text.changed_summary(len(comparison.changed), len(comparison), fixed, broken, known)
    if not known:
        return (changed,)
    before, after = (
        sum(label == right for label, right in zip(side.labels, truth, strict=True) if right is not None)
        for side in (comparison.zero_shot, comparison.adapted)
    )
    return changed, text.accuracy_summary(before, after, known)


def _confusion(comparison: atlas.Comparison, truth: Sequence[str | None]) -> str:
    """Both sides beside each other, in the same colours."""
    sides = {text.ZERO_SHOT: comparison.zero_shot, text.ADAPTED: comparison.adapted}
    grids = [
        replace(confusion_grid(truth, side), title=text.confusion_title(name)) for name, side in sides.items()
    ]
    reach = max(grid.reach for grid in grids)
    width = CONFUSION_WIDTH if len(comparison.adapted.classes) > FEW else CONFUSION_WIDTH_OF_FEW
    drawn = (_drawn(replace(grid, limit=reach), width) for grid in grids)
    return f"<section class='at-figure at-confusion'>{''.join(drawn)}</section>"


def _drawn(grid: Grid, width: int) -> str:
    return (
        f"<div><div class='at-desk'>{heat_map(grid, width=width)}</div>"
        f"<div class='at-phone'>{heat_map(grid, width=PHONE)}</div>{as_table(grid)}</div>"
    )
