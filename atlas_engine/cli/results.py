"""What an adaptation came to, as JSON and as words. Knows nothing of how anything was learned."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.output import emit, emit_json, say
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.data.support import Support
    from atlas_engine.predictions import Comparison
    from atlas_engine.result import AdaptResult

__all__ = ["answer_table", "estimate_facts", "estimate_table", "result_facts", "support_of", "tell_result"]


def support_of(folder: Path | ClassFolder, *, skip_unreadable: bool) -> Support:
    """The pictures of a folder to learn from; what is odd about them is said."""
    from atlas_engine.data.support import Support

    support, left_out = Support.read(folder, on_error="skip" if skip_unreadable else "raise")
    for sentence in (*map(str, left_out), *support.warnings()):
        say(sentence)
    return support


def tell_result(
    result: AdaptResult, args: argparse.Namespace, *, facts: Mapping[str, object], parts: Sequence[str]
) -> int:
    """Print the verdict with the facts, as JSON, or with the parts and where the recipe is, as words."""
    if args.json:
        emit_json({**result_facts(result), **facts})
    else:
        recipe = [f"recipe: {args.output}"] if args.output else []
        emit("\n\n".join([result.verdict.sentence, *parts, *recipe]))
    return 0


def result_facts(result: AdaptResult) -> dict[str, object]:
    """The verdict and how the run ended, as plain JSON types."""
    return {
        "method": result.verdict.kept,
        "helped": result.verdict.helped,
        "sentence": result.verdict.sentence,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
    }


def estimate_facts(result: AdaptResult) -> list[dict[str, object]]:
    """What was measured on images held out, as plain JSON types."""
    return [
        {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
        for e in result.estimates
    ]


def estimate_table(result: AdaptResult) -> str:
    """The same for people."""
    rows = [(e.method, 100 * e.accuracy, 100 * e.low, 100 * e.high, e.images) for e in result.estimates]
    return table(rows, ("held out", "right %", "from", "to", "images"))


def answer_table(answers: Comparison) -> str:
    """Both models' first answers, image by image."""
    pairs = zip(answers.zero_shot.top(1), answers.adapted.top(1), answers.adapted.names, strict=True)
    rows = [
        (name, old.label, round(100 * old.prob, 1), new.label, round(100 * new.prob, 1))
        for ((old,), (new,), name) in pairs
    ]
    return table(rows, ("image", "zero-shot", "%", "adapted", "%"))
