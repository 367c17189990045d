"""`atlas bench`: run timed suites and hold them to their bars."""

from __future__ import annotations

from pathlib import Path

import click

from atlas_engine.cli.options import command, json_file_option
from atlas_engine.cli.output import emit, say, write_json
from atlas_engine.views.tables import table
from studies.speed import suites

__all__ = ["bench"]


@command("atlas bench", "atlas bench cache --json bench.json")
@click.argument("names", nargs=-1, metavar="[NAME...]", help="suites to run (default: all of them)")
@click.option("--list", "only_list", is_flag=True, help="print the names of the suites, and run none")
@json_file_option
def bench(*, names: tuple[str, ...], only_list: bool, json_file: Path | None) -> None:
    """Time what the project promises, and check it.

    Each suite prints what is timed, a table of measures against their bars, and one JSON line. Run it on a
    quiet machine. The exit code is 1 if a bar is missed.
    """
    if only_list:
        emit(table([(suite.name, suite.summary) for suite in suites.SUITES], ("name", "what is timed")))
        return
    chosen = suites.choose(names)
    from studies.speed.report import render

    reports = []
    for suite in chosen:
        say(f"running {suite.name} …")
        reports.append(suite.run())
        emit(render(reports[-1]))
    if json_file:
        write_json(json_file, [report.as_dict() for report in reports])
    if not all(report.passed for report in reports):
        raise click.exceptions.Exit(1)
