"""`python -m studies.load_test`: start a server, send visitors, say which promises it kept."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from atlas_engine.views.tables import table
from studies.load_test.promises import (
    Crowd,
    Promise,
    measure_crowd,
    measure_memory,
    measure_one_visitor,
    measure_page,
    memory_growth,
)
from studies.load_test.server import Server, serve
from studies.load_test.visitors import visitor_requests

WHAT = "the app with its bundled model, asked through gradio_client and, where it is there, Chromium"


def main(arguments: list[str] | None = None) -> int:
    """Measure, print a table, and write the JSON; 1 when a promise was not kept."""
    given = _parser().parse_args(arguments)
    with (
        TemporaryDirectory(prefix="atlas-crowd-") as name,
        serve(Path(name), ATLAS_PROXIES="127.0.0.1") as server,
    ):
        _say(f"serving at {server.address}; load {_load()}")
        promises, crowd, memory = _measure(
            server, Path(name), visitors=given.visitors, runs=given.runs, only_crowd=given.only_crowd
        )
    rows = [(one.measure, _number(one.value), _number(one.most), one.unit, _mark(one)) for one in promises]
    sys.stdout.write(table(rows, ("measure", "value", "most", "unit", "kept")) + "\n")
    if given.json:
        given.json.write_text(
            json.dumps(_as_dict(promises, crowd, memory), indent=1) + "\n", encoding="utf-8"
        )
    return 0 if all(one.kept for one in promises) else 1


def _measure(
    server: Server, folder: Path, *, visitors: int, runs: int, only_crowd: bool
) -> tuple[list[Promise], Crowd, list[tuple[int, float]]]:
    promises: list[Promise] = []
    if not only_crowd:
        promises += measure_page(server)
        _say("one visitor")
        promises += measure_one_visitor(server, folder)
    _say(f"{visitors} visitors at once")
    crowd = measure_crowd(server, visitor_requests(visitors, folder))
    promises += crowd.promises
    memory = []
    for number, held in measure_memory(server, folder, runs=0 if only_crowd else runs):
        _say(f"run {number} of {runs}: {held:.0f} MB held")
        memory.append((number, held))
    return [*promises, *([memory_growth(memory)] if memory else [])], crowd, memory


def _as_dict(promises: list[Promise], crowd: Crowd, memory: list[tuple[int, float]]) -> dict[str, Any]:
    return {
        "name": "crowd",
        "passed": all(one.kept for one in promises),
        "what": WHAT,
        "machine": {
            "cores": os.cpu_count(),
            "system": f"{platform.system()} {platform.machine()}",
            "load": _load(),
        },
        "promises": [one.as_dict() for one in promises],
        "visits": crowd.as_rows(),
        "memory_megabytes": [[number, round(held, 1)] for number, held in memory],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m studies.load_test",
        description="Send many visitors to a server of its own, and hold it to its promises.",
        epilog="examples:\n  python -m studies.load_test --json assets/bench/crowd.json\n"
        "  python -m studies.load_test --visitors 3 --runs 10",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--visitors", type=int, default=20, help="visitors at once (20)")
    parser.add_argument("--runs", type=int, default=200, help="runs over which memory has to stay flat (200)")
    parser.add_argument(
        "--only-crowd", action="store_true", help="measure the visitors at once, and nothing else"
    )
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    return parser


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "unknown"


def _number(value: float) -> str:
    return f"{value:.0f}" if float(value).is_integer() else f"{value:.2f}"


def _mark(one: Promise) -> str:
    return "yes" if one.kept else "NO"


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
