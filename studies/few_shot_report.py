"""Few-shot methods compared, as tables and a grid to draw. Pure; knows nothing of engines or files.

A cell says the mean over seeds and the standard deviation over them: `41.2 ± 1.3`. A mean over data sets is
taken within each seed first. A difference to zero-shot is taken on each problem, so what makes a problem hard
for both is not in its spread.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from atlas_engine.views.heatmap import Grid
from studies.few_shot import GridRow
from studies.methods import ZERO_SHOT
from studies.report import ResultTable, names_in, those
from studies.trials import mean_of

__all__ = ["calibration_sheet", "grid_sheets", "method_grid"]

Rows = Sequence[GridRow]
Number = Callable[[GridRow], float]


def grid_sheets(rows: Rows) -> list[ResultTable]:
    """Means over data sets, differences to zero-shot, each data set, costs, and what methods expected."""
    datasets = names_in(rows, "dataset")
    where = f"mean over {len(datasets)} data sets" if len(datasets) > 1 else datasets[0]
    sheets = [_sheet(f"Accuracy in %, {where}", rows, lambda own: mean_of(own).shown())]
    gain = _gain(rows)
    if gain is not None:
        difference = _sheet(
            f"Difference to zero-shot in points, {where}",
            rows,
            lambda own: mean_of(own, gain).shown(sign=True),
        )
        sheets.append(difference)
    if len(datasets) > 1:
        sheets += [_dataset_sheet(name, those(rows, dataset=name), gain) for name in datasets]
    estimates = calibration_sheet(rows)
    return [*sheets, _cost_sheet(rows), *([] if estimates is None else [estimates])]


def calibration_sheet(rows: Rows) -> ResultTable | None:
    """What methods expected of themselves beside what came true; nothing where none says."""
    lines = []
    for method in names_in(rows, "method"):
        for shots in sorted({row.shots for row in rows}):
            own = [row for row in those(rows, method=method, shots=shots) if row.estimate is not None]
            if own:
                lines.append((method, shots, len(own), *_calibration(own)))
    if not lines:
        return None
    columns = ("method", "shots", "problems", "estimate %", "true %", "off by", "true in the interval %")
    title = "What a method expects without test images, and what comes true (off by: mean distance in points)"
    return ResultTable(title, lines, columns)


def method_grid(rows: Rows) -> Grid:
    """Methods × shots, mean over data sets and seeds: points above zero-shot, or accuracy without that."""
    gain, shots = _gain(rows), sorted({row.shots for row in rows})
    methods = tuple(name for name in names_in(rows, "method") if gain is None or name != ZERO_SHOT)
    methods = methods or (ZERO_SHOT,)
    number = gain or _accuracy
    values = tuple(
        tuple(100 * mean_of(those(rows, method=name, shots=k), number).mean for k in shots)
        for name in methods
    )
    datasets, seeds = len(names_in(rows, "dataset")), len({row.seed for row in rows})
    what = "Accuracy in %" if gain is None else "Accuracy above zero-shot in points"
    return Grid(
        "Few-shot methods",
        methods,
        tuple(f"k = {k}" for k in shots),
        values,
        number=".1f" if gain is None else "+.1f",
        about=f"{what}, by shots a class; mean of {datasets} data set(s) and {seeds} seed(s).",
    )


def _sheet(title: str, rows: Rows, cell: Callable[[Rows], str]) -> ResultTable:
    """Methods × shots."""
    shots = sorted({row.shots for row in rows})
    lines = [
        (method, *(cell(those(rows, method=method, shots=k)) for k in shots))
        for method in names_in(rows, "method")
    ]
    return ResultTable(title, lines, ("method", *(f"k = {k}" for k in shots)))


def _dataset_sheet(name: str, rows: Rows, gain: Number | None) -> ResultTable:
    def cell(own: Rows) -> str:
        accuracy = mean_of(own).shown()
        return accuracy if gain is None else f"{accuracy} ({100 * mean_of(own, gain).mean:+.1f})"

    counts = sorted({row.n_test for row in rows})
    images = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    behind = "" if gain is None else ", and points above zero-shot"
    return _sheet(f"{name}: accuracy in % on {images} images{behind}", rows, cell)


def _cost_sheet(rows: Rows) -> ResultTable:
    def cell(own: Rows) -> str:
        seconds = f"{statistics.median(row.seconds for row in own):.1f}"
        fell = sum(row.fell_back for row in own)
        return f"{seconds}, fell back {fell} of {len(own)}" if fell else seconds

    return _sheet("Seconds to learn, median of the problems; naming images is not counted", rows, cell)


def _calibration(rows: Rows) -> tuple[float, float, float, float]:
    pairs = [(row.estimate or 0.0, row.accuracy) for row in rows]
    inside = [
        (row.estimate_low or 0.0) <= row.accuracy <= (1.0 if row.estimate_high is None else row.estimate_high)
        for row in rows
    ]
    numbers = (
        statistics.fmean(expected for expected, _ in pairs),
        statistics.fmean(true for _, true in pairs),
        statistics.fmean(abs(expected - true) for expected, true in pairs),
        statistics.fmean(inside),
    )
    estimate, true, off, share = (round(100 * number, 1) for number in numbers)
    return estimate, true, off, share


def _gain(rows: Rows) -> Number | None:
    """Accuracy above zero-shot on the same problem, if zero-shot was measured."""
    known = {(r.dataset, r.shots, r.seed): r.accuracy for r in those(rows, method=ZERO_SHOT)}
    return (lambda row: row.accuracy - known[row.dataset, row.shots, row.seed]) if known else None


def _accuracy(row: GridRow) -> float:
    return row.accuracy
