"""A run as HTML: how far it is, its loss curve, its estimates, its verdict. Pure; knows nothing of events.

Every bar and curve has its numbers in words beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import atlas_engine as atlas
from app import roll_text, text
from app.alerts import sentence
from app.handlers.teach import RunProgress
from app.markup import heading, note
from app.state import SavedResult

__all__ = ["estimates_html", "loss_curve", "progress_html", "verdict_html"]

ZERO_SHOT, ASKED = "zero-shot", "was asked for"  # as the engine says it
CURVE_WIDTH, CURVE_HEIGHT = 260, 64  # pixels


def progress_html(taught: RunProgress) -> str:
    """What the run is doing, how long it will take, its loss so far and what is known of its accuracy."""
    left = "" if taught.seconds_left is None else text.time_left(taught.seconds_left)
    doing = text.phase(taught.phase, taught.index, taught.of)
    done = taught.index / taught.of if taught.phase == "read" else taught.share
    curve = loss_curve(taught.losses) if len(taught.losses) > 1 else ""
    return (
        f"<section class='at-run'>{heading(text.RESULT_HEADING)}"
        f"<p class='at-doing'><span role='status'>{escape(doing)}</span><span>{escape(left)}</span></p>"
        f"<div class='at-track' role='progressbar' aria-label='{escape(doing)}' aria-valuemin='0' "
        f"aria-valuemax='100' aria-valuenow='{100 * done:.0f}'><span style='width:{done:.1%}'></span></div>"
        f"<div class='at-facts'>{estimates_html(taught.estimates)}{curve}</div></section>"
    )


def verdict_html(kept: SavedResult, *, remark: str = "") -> str:
    """The honest sentence, large, with what it rests on."""
    mood = {True: "helped", False: "same", None: "open"}[kept.helped]
    remarks = [remark, text.STOPPED_NOTE if kept.stopped else ""]
    doubt = note(text.OVERLAP_NOTE) if kept.helped and _overlap(kept) else ""
    told = "".join(note(words) for words in remarks if words)
    curve = loss_curve(kept.losses) if len(kept.losses) > 1 else ""
    return (
        f"<section class='at-run'>{heading(text.RESULT_HEADING)}{told}"
        f"<p class='at-verdict at-{mood}' role='status'>{escape(_told(kept))}</p>{doubt}"
        f"<div class='at-facts'>{_estimates_kept(kept)}{curve}</div>"
        f"{note(text.took(kept.seconds, len(kept.samples)))}</section>"
    )


def estimates_html(
    estimates: Sequence[atlas.Estimate], *, kept: str | None = None, explained: str = ""
) -> str:
    """Estimated accuracies: a dot on a band from low to high, and the numbers; then what they mean.

    The method that was `kept` is marked, where one was.
    """
    if not estimates:
        return ""
    rows = "".join(_estimate(one, kept=one.method == kept) for one in estimates)
    return f"<div class='at-estimates'><ul>{rows}</ul>{explained}</div>"


def _estimates_kept(kept: SavedResult) -> str:
    summary = f"<summary>{escape(text.HELD_OUT_QUESTION)}</summary>"
    explained = f"<details>{summary}{note(text.HELD_OUT_NOTE)}</details>"
    return estimates_html(kept.estimates, kept=kept.recipe.method, explained=explained)


def loss_curve(losses: Sequence[float]) -> str:
    """The loss over the steps as a small SVG, with its first and last number."""
    low, high = min(0.0, *losses), max(*losses, 1e-6)
    room = CURVE_HEIGHT - 8
    points = " ".join(
        f"{CURVE_WIDTH * place / (len(losses) - 1):.1f},{4 + room * (high - loss) / (high - low):.1f}"
        for place, loss in enumerate(losses)
    )
    told = text.loss_change(losses[0], losses[-1])
    return (
        f"<figure class='at-loss'><svg viewBox='0 0 {CURVE_WIDTH} {CURVE_HEIGHT}' role='img' "
        f"aria-label='{escape(told)}' preserveAspectRatio='none'><polyline points='{points}'/></svg>"
        f"<figcaption>{escape(told)}</figcaption></figure>"
    )


def _told(kept: SavedResult) -> str:
    """The engine's sentence, with the name that the page has for a method."""
    method = kept.recipe.method
    name = {**roll_text.METHOD_NAMES, **text.METHOD_NAMES}.get(method, method)
    return sentence(kept.sentence.replace(f"{method} {ASKED}", f"“{name}” {ASKED}"))


def _overlap(kept: SavedResult) -> bool:
    """Whether the bands of zero-shot and of what was kept have a part in common."""
    found = {one.method: one for one in kept.estimates}
    before, after = found.get(ZERO_SHOT), found.get(kept.recipe.method)
    return before is not None and after is not None and after.low <= before.high


def _estimate(one: atlas.Estimate, *, kept: bool) -> str:
    mark = f" <b>{escape(text.KEPT_MARK)}</b>" if kept else ""
    band = f"left:{one.low:.1%};width:{one.high - one.low:.1%}"
    numbers = text.interval(one.accuracy, one.low, one.high)
    return (
        f"<li><span class='at-label'>{escape(text.METHOD_SHORT.get(one.method, one.method))}{mark}</span>"
        f"<span class='at-number'>{escape(numbers)}</span>"
        f"<span class='at-band' aria-hidden='true'><span style='{band}'></span>"
        f"<i style='left:{one.accuracy:.1%}'></i></span></li>"
    )
