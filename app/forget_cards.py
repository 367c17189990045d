"""What is forgotten and what is kept at each strength, as HTML. Pure; everything from outside is escaped.

The two curves differ in line and name as well as in colour, and their numbers stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import atlas_engine as atlas
from app import forget_text, text
from app.alerts import sentence
from app.compare_cards import pairs_html
from app.examples import ForgetExample
from app.handlers.forget import ForgetResult
from app.handlers.lesson import LabelledImage
from app.markup import example_button, example_row, heading, note

__all__ = ["example_html", "numbers_html", "seen_html", "verdict_html"]

WIDTH, HEIGHT, EDGE = 320, 120, 8  # pixels


def example_html(example: ForgetExample) -> str:
    """The button that fills in the example."""
    pictures = [row.paths[0] for row in example.target[:4]]
    button = example_button(0, forget_text.EXAMPLE_TITLE, pictures, forget_text.EXAMPLE_LABEL)
    return example_row(forget_text.EXAMPLES_HEADING, [button])


def verdict_html(kept: ForgetResult, *, remark: str = "") -> str:
    """The honest sentence, large."""
    mood = "helped" if kept.helped else "same"
    told = "".join(note(words) for words in (remark, text.STOPPED_NOTE if kept.stopped else "") if words)
    return (
        f"<section class='at-run'>{heading(text.RESULT_HEADING)}{told}"
        f"<p class='at-verdict at-{mood}' role='status'>{escape(sentence(kept.sentence))}</p>"
        f"{note(forget_text.taken(kept.seconds, len(kept.target) + len(kept.control)))}</section>"
    )


def numbers_html(kept: ForgetResult, strength: float) -> str:
    """Both accuracies at a strength, the curves they lie on, and all of them as a table."""
    first, now = kept.curve[0], kept.at(strength)
    bars = _bar(forget_text.TARGET_SIDE, first.target, now.target, side="target")
    bars += _bar(forget_text.CONTROL_SIDE, first.control, now.control, side="control")
    return (
        f"<section class='at-forget'>{heading(forget_text.NUMBERS_HEADING, level=3)}"
        f"<div class='at-facts'><ul class='at-shares'>{bars}</ul>{_curves(kept.curve, now.scale)}</div>"
        f"{note(forget_text.MEASURED_NOTE)}{_table(kept.curve)}</section>"
    )


def seen_html(seen: Sequence[tuple[atlas.Comparison, tuple[LabelledImage, ...]]]) -> str:
    """Some pictures of each side, as the model was and now."""
    sides = zip((forget_text.TARGET_SIDE, forget_text.CONTROL_SIDE), seen, strict=True)
    names = (forget_text.AS_IT_WAS, forget_text.NOW)
    return "".join(
        heading(side, level=3) + pairs_html(told, shown, names=names, top=2) for side, (told, shown) in sides
    )


def _bar(name: str, before: float, now: float, *, side: str) -> str:
    return (
        f"<li><span class='at-label at-{side}-side'>{escape(name)}</span>"
        f"<span class='at-number'>{escape(forget_text.share(before, now))}</span>"
        f"<span class='at-band' aria-hidden='true'><span style='left:0;width:{now:.1%}'></span>"
        f"<i style='left:{before:.1%}'></i></span></li>"
    )


def _curves(curve: Sequence[atlas.ForgettingPoint], strength: float) -> str:
    def line(side: str) -> str:
        points = " ".join(f"{_x(one.scale):.1f},{_y(getattr(one, side)):.1f}" for one in curve)
        return f"<polyline class='at-{side}-side' points='{points}'/>"

    first, last = curve[0], curve[-1]
    told = forget_text.curve_words((first.target, last.target), (first.control, last.control))
    here = f"<line x1='{_x(strength):.1f}' x2='{_x(strength):.1f}' y1='{EDGE}' y2='{HEIGHT - EDGE}'/>"
    return (
        f"<figure class='at-curves'><svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' "
        f"aria-label='{escape(told)}'>{here}{line('target')}{line('control')}</svg>"
        f"<figcaption><span class='at-target-side'>{escape(forget_text.TARGET_SIDE)}</span> "
        f"<span class='at-control-side'>{escape(forget_text.CONTROL_SIDE)}</span></figcaption></figure>"
    )


def _x(strength: float) -> float:
    return EDGE + (WIDTH - 2 * EDGE) * strength


def _y(share: float) -> float:
    return EDGE + (HEIGHT - 2 * EDGE) * (1 - share)


def _table(curve: Sequence[atlas.ForgettingPoint]) -> str:
    head = "".join(f"<th scope='col'>{escape(name)}</th>" for name in forget_text.TABLE_COLUMNS)
    rows = "".join(
        f"<tr><th scope='row'>{one.scale:.0%}</th><td>{one.target:.0%}</td><td>{one.control:.0%}</td></tr>"
        for one in curve
    )
    table = f"<table class='at-table'><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f"<details><summary>{escape(forget_text.TABLE_SUMMARY)}</summary>{table}</details>"
