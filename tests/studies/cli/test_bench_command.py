"""`atlas bench`, run as a person runs it."""

from __future__ import annotations

import subprocess
import sys

from atlas_engine.cli import main
from studies.speed import suites


def test_the_suites_are_listed_without_torch():
    listing = "import sys; from atlas_engine.cli import main; main(['bench', '--list'])"
    code = f"{listing}; sys.exit('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} == {
        suite.name for suite in suites.SUITES
    }


def test_an_unknown_suite_is_refused_with_the_nearest(capsys):
    assert main(["bench", "cach"]) == 1
    assert "suite 'cach' is not known. Did you mean 'cache'?" in capsys.readouterr().err
