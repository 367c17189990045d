"""What methods lose away from home, as tables and a grid to draw. Pure; knows nothing of engines.

At home is the domain that was learned from; away is every other. A gain is the accuracy above zero-shot on
the same pictures; what is lost away is the gain at home less the gain away. A cell says the mean over seeds
and the standard deviation over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atlas_engine.views.heatmap import Grid
from studies.corruptions import CORRUPTIONS
from studies.methods import ZERO_SHOT
from studies.report import ResultTable, names_in, those
from studies.transfer import TransferRow
from studies.trials import Mean, mean_of

__all__ = ["transfer_grid", "transfer_sheets"]

Rows = Sequence[TransferRow]
Gain = Callable[[TransferRow], float]


def transfer_sheets(rows: Rows) -> list[ResultTable]:
    """What each method gains and loses over all sources, and every source with its domains."""
    each = [_source_sheet(source, those(rows, source=source)) for source in names_in(rows, "source")]
    gain, learned = _gain(rows), any(row.method != ZERO_SHOT for row in rows)
    return [_loss_sheet(rows, gain), *each] if gain is not None and learned else each


def transfer_grid(rows: Rows) -> Grid:
    """Methods × domains, at home and away: points above zero-shot, or accuracy without that."""
    gain = _gain(rows)
    methods = tuple(name for name in names_in(rows, "method") if gain is None or name != ZERO_SHOT)
    methods = methods or (ZERO_SHOT,)
    homes = names_in(rows, "source")
    away = tuple(name for name in names_in(rows, "domain") if name not in homes)
    number: Gain = gain or (lambda row: row.accuracy)
    values = tuple(
        tuple(
            100 * mean_of(those(rows, method=method, domain=domain), number).mean for domain in homes + away
        )
        for method in methods
    )
    what = "Accuracy in %" if gain is None else "Accuracy above zero-shot in points"
    return Grid(
        "Learned on one domain, asked about others",
        methods,
        (*(f"{home} (home)" for home in homes), *away),
        values,
        number=".1f" if gain is None else "+.1f",
        about=f"{what}; mean of {len({row.seed for row in rows})} seed(s).",
    )


def _loss_sheet(rows: Rows, gain: Gain) -> ResultTable:
    """At home and away over all sources; styles of other folders and damages of the source's own apart."""
    lines = []
    for method in (name for name in names_in(rows, "method") if name != ZERO_SHOT):
        own = those(rows, method=method)
        parts = [[r for r in own if _kind(r) == kind] for kind in (HOME, OTHER, DAMAGED)]
        away = [row for row in own if not row.at_home]
        lost = _lost(own, gain)
        worse = sum(gain(row) < 0 for row in away)
        lines.append(
            (
                method,
                *(mean_of(part, gain).shown(sign=True) if part else "–" for part in (*parts, away)),
                "–" if lost is None else lost.shown(),
                f"{worse} of {len(away)}",
            )
        )
    columns = ("method", "at home", "other style", "damaged", "away", "lost away", "below zero-shot away")
    title = "Points above zero-shot, mean over sources; lost away: at home less away"
    return ResultTable(title, lines, columns)


def _source_sheet(source: str, rows: Rows) -> ResultTable:
    domains = names_in(rows, "domain")
    lines = [
        (method, *(mean_of(those(rows, method=method, domain=domain)).shown() for domain in domains))
        for method in names_in(rows, "method")
    ]
    shots = rows[0].shots
    title = f"{source}: accuracy in %, learned from {shots} shots a class there, on each domain"
    return ResultTable(title, lines, ("method", *domains))


HOME, OTHER, DAMAGED = "at home", "other style", "damaged"


def _kind(row: TransferRow) -> str:
    """A damage is named with its severity, as fog:3."""
    if row.at_home:
        return HOME
    return DAMAGED if row.domain.partition(":")[0] in CORRUPTIONS else OTHER


def _lost(rows: Rows, gain: Gain) -> Mean | None:
    """Gain at home less gain away, of each source and seed."""
    home = {(row.source, row.seed): gain(row) for row in rows if row.at_home}
    away = [row for row in rows if not row.at_home]
    return mean_of(away, lambda row: home[row.source, row.seed] - gain(row)) if away else None


def _gain(rows: Rows) -> Gain | None:
    """Accuracy above zero-shot on the same pictures, if zero-shot was measured."""
    known = {(r.source, r.domain, r.seed): r.accuracy for r in those(rows, method=ZERO_SHOT)}
    return (lambda row: row.accuracy - known[row.source, row.domain, row.seed]) if known else None
