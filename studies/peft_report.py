"""Ways to learn from shares of a training set, as tables and a grid to draw. Pure; knows nothing of engines.

A cell says the mean over seeds and the standard deviation over them. A mean over data sets is taken within
each seed first.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from itertools import pairwise

from atlas_engine.views.heatmap import Grid
from studies.peft import LORA, WHOLE, PeftRow
from studies.report import ResultTable, names_in, those
from studies.trials import mean_of

__all__ = ["peft_grid", "peft_sheets"]

Rows = Sequence[PeftRow]
Cell = Callable[[Rows], str]


def peft_sheets(rows: Rows) -> list[ResultTable]:
    """Means over data sets, what more parts bring, and each data set."""
    datasets = names_in(rows, "dataset")
    where = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    zero_shot = mean_of(rows, lambda row: row.zero_shot).shown()
    first = _sheet(f"Accuracy in %, {where} (zero-shot {zero_shot})", rows, lambda own: mean_of(own).shown())
    each = [_dataset_sheet(name, those(rows, dataset=name)) for name in datasets] if len(datasets) > 1 else []
    rises = _rise_sheet(rows)
    return [first, *([] if rises is None else [rises]), *each]


def peft_grid(rows: Rows) -> Grid:
    """Ways × shares, mean over data sets and seeds: points above zero-shot."""
    percents = sorted({row.percent for row in rows})
    lines = _lines(rows)
    values = [
        tuple(
            100 * mean_of(those(own, percent=p), lambda row: row.accuracy - row.zero_shot).mean
            for p in percents
        )
        for _, own in lines
    ]
    return Grid(
        "Learning from a share of the training set",
        tuple(name for name, _ in lines),
        tuple(f"{percent} %" for percent in percents),
        tuple(values),
        about=f"Accuracy above zero-shot in points; mean of {len(names_in(rows, 'dataset'))} data set(s) "
        f"and {len({row.seed for row in rows})} seed(s).",
    )


def _sheet(title: str, rows: Rows, cell: Cell) -> ResultTable:
    """Ways × shares, with how many numbers each way learns."""
    percents = sorted({row.percent for row in rows})
    lines = [
        (name, _parameters(own), *(cell(those(own, percent=percent)) for percent in percents))
        for name, own in _lines(rows)
    ]
    return ResultTable(title, lines, ("what learns", "parameters", *(f"{percent} %" for percent in percents)))


def _dataset_sheet(name: str, rows: Rows) -> ResultTable:
    zero_shot = mean_of(rows, lambda row: row.zero_shot).shown()
    whole = round(statistics.fmean(row.images for row in rows if row.percent == max(r.percent for r in rows)))
    title = f"{name}: accuracy in %, of {whole} training images (zero-shot {zero_shot})"
    return _sheet(title, rows, lambda own: mean_of(own).shown())


def _rise_sheet(rows: Rows) -> ResultTable | None:
    """Points between one number of parts and the next, on the same training sets."""
    kinds = [name for name in names_in(rows, "way") if name != WHOLE]
    parts = sorted({row.partitions for row in rows if row.way != WHOLE})
    if len(parts) < 2:
        return None
    percents = sorted({row.percent for row in rows})
    known = {(r.way, r.dataset, r.seed, r.percent, r.partitions): r.accuracy for r in rows}
    lines = []
    for way in kinds:
        for before, after in pairwise(parts):
            own = those(rows, way=way, partitions=after)

            def rise(row: PeftRow, before: int = before) -> float:
                return row.accuracy - known[row.way, row.dataset, row.seed, row.percent, before]

            cells = [mean_of(those(own, percent=p), rise).shown(sign=True) for p in percents]
            lines.append((way, f"{before} → {after}", *cells))
    return ResultTable(
        "What more parts K bring, in points on the same training sets",
        lines,
        ("what learns", "K", *(f"{percent} %" for percent in percents)),
    )


def _lines(rows: Rows) -> list[tuple[str, list[PeftRow]]]:
    """A name for each way and number of parts, and its rows."""
    found = []
    for way in names_in(rows, "way"):
        for K in sorted({row.partitions for row in those(rows, way=way)}):
            name = way if way == WHOLE else f"{way}, as × {K}" if way == LORA else f"{way} × {K}"
            found.append((name, those(rows, way=way, partitions=K)))
    return found


def _parameters(rows: Rows) -> str:
    counts = sorted({row.parameters for row in rows})
    return "–".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
