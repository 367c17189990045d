"""`atlas bench`: run timed suites and hold them to their bars. Knows nothing of what they time."""

from __future__ import annotations

import argparse

from atlas_engine.cli.command import Command
from atlas_engine.cli.output import add_json_file, emit, say, write_json
from atlas_engine.views.tables import table
from studies.speed import suites

__all__ = ["BENCH"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which suites, and where to."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="suites to run (default: all of them)")
    parser.add_argument("--list", action="store_true", help="print the names of the suites, and run none")
    add_json_file(parser)


def run(args: argparse.Namespace) -> int:
    """Run the suites one after the other; 1 if any bar is missed."""
    if args.list:
        emit(table([(suite.name, suite.summary) for suite in suites.SUITES], ("name", "what is timed")))
        return 0
    chosen = suites.choose(args.names)
    from studies.speed.report import render

    reports = []
    for suite in chosen:
        say(f"running {suite.name} …")
        reports.append(suite.run())
        emit(render(reports[-1]))
    if args.json:
        write_json(args.json, [report.as_dict() for report in reports])
    return 0 if all(report.passed for report in reports) else 1


BENCH = Command(
    arguments,
    run,
    ("atlas bench", "atlas bench cache --json bench.json"),
    about="Each suite prints what is timed, a table of measures against their bars, and one JSON line.\n"
    "Run it on a quiet machine. The exit code is 1 if a bar is missed.",
)
