"""Run one suite in this process and write its report. `atlas bench` starts such a process for each suite.

python -m studies.speed.run studies.speed.cache_hit:cache_hit --json report.json
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path

from atlas_engine.errors import AtlasError
from studies.speed.report import Report

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Run the suite and write its JSON; 1 where it could not be measured, whether or not its bars are met."""
    parser = argparse.ArgumentParser(prog="python -m studies.speed.run", description=__doc__)
    parser.add_argument("target", metavar="MODULE:FUNCTION", help="the function that gives the report")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="where to write the report")
    given = parser.parse_args(arguments)
    module, _, function = given.target.partition(":")
    try:
        report: Report = getattr(importlib.import_module(module), function)()
    except AtlasError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    given.json.write_text(json.dumps(report.as_dict()), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
