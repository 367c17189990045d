"""Pairs of tasks and numbers of coefficients, as tables and a grid to draw. Pure; knows nothing of engines.

A cell says the mean over seeds and the standard deviation over them.
"""

from __future__ import annotations

from collections.abc import Sequence

from atlas_engine.views.heatmap import Grid
from studies.dimension import RANDOM, VECTORS, DimensionRow
from studies.disentangle import PairRow
from studies.peft import WHOLE
from studies.tables import MEAN, Mean, ResultTable, distinct, seed_mean, where

__all__ = ["dimension_tables", "error_grid", "pair_tables"]


def pair_tables(rows: Sequence[PairRow]) -> list[ResultTable]:
    """Each scaling over all pairs, then ξ and cosine of each pair; nothing where there is no pair."""
    if not rows:
        return []
    lines = []
    for scaling in distinct(rows, "scaling"):
        own = where(rows, scaling=scaling)
        error, alone = seed_mean(own, lambda row: row.error), seed_mean(own, lambda row: row.alone)
        cosine = _plain(seed_mean(own, lambda row: row.cosine))
        lines.append((scaling, cosine, error.shown(), alone.shown(), seed_mean(own).shown()))
    zero_shot = seed_mean(rows, lambda row: row.zero_shot).shown()
    title = f"Two vectors at once, mean over {len(distinct(rows, 'pair'))} pair(s) (zero-shot {zero_shot} %)"
    columns = ("scaling", "cosine", "error ξ %", "own vector alone %", "both %")
    return [ResultTable(title, lines, columns), _pair_sheet(rows)]


def _pair_sheet(rows: Sequence[PairRow]) -> ResultTable:
    scalings = distinct(rows, "scaling")
    lines = [
        (
            pair,
            *(_plain(seed_mean(where(rows, pair=pair, scaling=s), lambda row: row.cosine)) for s in scalings),
            *(seed_mean(where(rows, pair=pair, scaling=s), lambda row: row.error).shown() for s in scalings),
        )
        for pair in distinct(rows, "pair")
    ]
    columns = ("pair", *(f"cosine, {name}" for name in scalings), *(f"ξ %, {name}" for name in scalings))
    return ResultTable("Each pair", lines, columns)


def error_grid(rows: Sequence[PairRow]) -> Grid:
    """ξ of every pair in every scaling."""
    pairs, scalings = distinct(rows, "pair"), distinct(rows, "scaling")
    values = tuple(
        tuple(
            100 * seed_mean(where(rows, pair=pair, scaling=scaling), lambda row: row.error).mean
            for scaling in scalings
        )
        for pair in pairs
    )
    about = (
        "Share of pictures in % whose answer another task's vector changes (ξ), by how vectors are scaled."
    )
    return Grid("How much vectors disturb each other", pairs, scalings, values, number=".1f", about=about)


def dimension_tables(rows: Sequence[DimensionRow]) -> list[ResultTable]:
    """Accuracy by the number of coefficients, of both kinds of directions."""
    datasets = distinct(rows, "dataset")
    lines = []
    for layout in distinct(rows, "layout"):
        own = where(rows, layout=layout)
        size = _range({row.coefficients for row in own})
        for directions in distinct(own, "directions"):
            some = where(own, directions=directions)
            cells = [seed_mean(where(some, dataset=name)).shown() for name in datasets]
            mean = seed_mean(some).shown()
            lines.append((layout, size, directions, *cells, mean, _reached(some, rows)))
    zero_shot = [seed_mean(where(rows, dataset=name), lambda row: row.zero_shot).shown() for name in datasets]
    lines.append(("zero-shot", "0", "–", *zero_shot, seed_mean(rows, lambda row: row.zero_shot).shown(), "0"))
    columns = ("coefficients", "how many", "directions", *datasets, MEAN, "of fine-tuning's gain %")
    return [ResultTable("Accuracy in % by the number of coefficients", lines, columns)]


def ahead(rows: Sequence[DimensionRow], layout: str) -> Mean:
    """Accuracy with task vectors less that with random directions, on the same training sets."""
    known = {(r.dataset, r.seed): r.accuracy for r in where(rows, layout=layout, directions=RANDOM)}
    own = where(rows, layout=layout, directions=VECTORS)
    return seed_mean(own, lambda row: row.accuracy - known[row.dataset, row.seed])


def _reached(some: Sequence[DimensionRow], rows: Sequence[DimensionRow]) -> str:
    """The gain over zero-shot as a share of what learning all weights gains."""
    whole = seed_mean(where(rows, directions=WHOLE), lambda row: row.accuracy - row.zero_shot).mean
    gain = seed_mean(some, lambda row: row.accuracy - row.zero_shot).mean
    return "–" if whole <= 0 else f"{100 * gain / whole:.0f}"


def _range(numbers: set[int]) -> str:
    low, high = min(numbers), max(numbers)
    return "–".join(f"{number:,}" for number in dict.fromkeys((low, high)))


def _plain(mean: Mean) -> str:
    return f"{mean.mean:+.3f}" if mean.spread is None else f"{mean.mean:+.3f} ± {mean.spread:.3f}"
