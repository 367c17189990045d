"""`atlas eval capacity`: what a stream of visitors needs, by a simulation of the queue."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import click

from atlas_engine.cli.options import PATH, command, json_file_option, parse_words, positive
from atlas_engine.cli.output import emit, write_json
from atlas_engine.errors import EvalError
from atlas_engine.views.tables import table

__all__ = ["capacity"]

SHARE = 0.95  # of the visitors, whom the longest wait is promised


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in parse_words(text))
    except ValueError:
        raise click.BadParameter(f"'{text}' is no list of numbers.") from None
    if not found or min(found) <= 0:
        raise click.BadParameter(f"'{text}' must be one or more numbers above 0.")
    return found


@command(
    "atlas eval capacity --load-test assets/bench/waits.json",
    "atlas eval capacity --seconds 0.25,1,5 --per-hour 1000,10000 --wait 10",
)
@click.option(
    "--load-test",
    type=PATH,
    metavar="FILE",
    help="JSON of `python -m studies.load_test`: its seconds of service, and how well it is predicted",
)
@click.option("--seconds", type=_numbers, metavar="X,X", help="seconds that a visit occupies a lane, instead")
@click.option(
    "--per-hour", type=_numbers, default="100,1000,10000", metavar="N,N", help="visitors (100,1000,10000)"
)
@click.option("--wait", type=float, default=10.0, metavar="X", help="seconds that 95 % may wait (default 10)")
@click.option("--hours", type=positive, default=4, metavar="N", help="hours to simulate (default 4)")
@click.option("--seed", type=int, default=0, metavar="N", help="of the arrivals (default 0)")
@json_file_option
def capacity(
    *,
    load_test: Path | None,
    seconds: tuple[float, ...] | None,
    per_hour: tuple[float, ...],
    wait: float,
    hours: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Say how many lanes a stream of visitors needs.

    A lane adapts for one visitor at a time: a server of this project has one. Visitors come at random, and
    wait in the order of arrival. Prints the fewest lanes with which 95 % wait no longer than --wait.
    """
    from studies.capacity import lanes_needed, predict_crowd

    if (load_test is None) == (seconds is None):
        raise click.UsageError("give either --load-test FILE or --seconds X.")
    report: dict[str, Any] = {"hours": hours, "seed": seed, "wait": wait, "share": SHARE}
    measured: dict[str, list[float]] = {f"{value:g}": [value] for value in seconds or ()}
    if load_test is not None:
        recorded = _read_load_test(load_test)
        crowd = predict_crowd(recorded)
        services = [row["alone_seconds"] for row in recorded["visits"]]
        measured[f"{statistics.fmean(services):.1f}"] = services
        report["crowd"] = {
            "visitors": len(crowd.measured),
            "predicted_last": crowd.predicted[-1],
            "measured_last": crowd.measured[-1],
            "error": crowd.error,
        }
        emit(
            f"{len(crowd.measured)} visitors at once: the last is served after {crowd.measured[-1]:.1f} s, "
            f"simulated {crowd.predicted[-1]:.1f} s; error over all {crowd.error:.0%}\n"
        )
    report["rows"] = []
    for words, services in measured.items():
        for rate in per_hour:
            lanes, outcome = lanes_needed(
                services, per_hour=rate, hours=hours, most_wait=wait, share=SHARE, seed=seed
            )
            report["rows"].append(
                {
                    "seconds": float(words),
                    "per_hour": rate,
                    "lanes": lanes,
                    "mean_wait": outcome.mean_wait,
                    "wait_95": outcome.wait_at(SHARE),
                    "busy_share": outcome.busy_share,
                }
            )
    columns = ("seconds a visit", "visitors/hour", "lanes", "mean wait s", "95 % wait s", "busy %")
    emit(table([_row(row) for row in report["rows"]], columns))
    if json_file:
        write_json(json_file, report)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        f"{row['seconds']:g}",
        f"{row['per_hour']:g}",
        row["lanes"],
        f"{row['mean_wait']:.1f}",
        f"{row['wait_95']:.1f}",
        f"{100 * row['busy_share']:.0f}",
    )


def _read_load_test(path: Path) -> dict[str, Any]:
    try:
        recorded = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EvalError(
            f"{path} cannot be read as JSON: {error}. Give a file of `python -m studies.load_test --json`."
        ) from error
    if not isinstance(recorded, dict):
        raise EvalError(f"{path} is no load test. Give a file of `python -m studies.load_test --json`.")
    return recorded
