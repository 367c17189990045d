"""Suites run in processes of their own; a missed bar fails the command, and so does a suite that fails."""

from __future__ import annotations

import json
import os

import pytest

from atlas_engine.cli import main
from atlas_engine.errors import EvalError
from studies.speed import suites
from studies.speed.cache_hit import cache_hit
from studies.speed.report import Bar, Report
from studies.speed.suites import Suite, choose


def report_with(value: float, **notes: str) -> Report:
    return Report(
        "toy", "nothing at all", "the speed of light", (Bar("ratio", value, "<=", 1.0, "×"),), notes
    )


def process() -> Report:
    return report_with(0.5, pid=str(os.getpid()))


def fail() -> Report:
    raise EvalError("the clock stands still.")


def crash() -> Report:
    os._exit(3)


def toy(function: str) -> Suite:
    return Suite("toy", "nothing", f"{__name__}:{function}")


def test_each_suite_runs_in_a_process_of_its_own():
    pids = [toy("process").run().notes["pid"] for _ in range(2)]
    assert len({*pids, str(os.getpid())}) == 3


@pytest.mark.parametrize(("function", "code"), [("fail", 1), ("crash", 3)])
def test_a_suite_that_gives_no_report_is_an_error_with_its_exit_code(function, code, capfd):
    with pytest.raises(EvalError, match=rf"suite 'toy' ended without a report \(exit code {code}\)"):
        toy(function).run()
    assert ("the clock stands still." in capfd.readouterr().err) == (function == "fail")


def met() -> Report:
    return report_with(0.5)


def missed() -> Report:
    return report_with(float("nan"))


@pytest.mark.parametrize(("function", "code"), [("met", 0), ("missed", 1)])
def test_the_exit_code_of_bench_tells_whether_the_bars_are_met(function, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(suites, "SUITES", (toy(function),))
    target = tmp_path / "bench.json"
    assert main(["bench", "--json", str(target)]) == code
    printed = capsys.readouterr()
    assert printed.out.startswith("# toy")
    assert printed.err == "atlas: running toy …\n"
    assert [report["passed"] for report in json.loads(target.read_text())] == [code == 0]


def test_suites_run_in_the_order_asked_for_and_once_each():
    rows = (Suite("a", "", "m:f"), Suite("b", "", "m:f"))
    assert choose(["b", "a", "b"], suites=rows) == [rows[1], rows[0]]
    assert choose([], suites=rows) == list(rows)


def test_every_suite_of_the_table_can_be_found():
    for suite in suites.SUITES:
        module, _, name = suite.target.partition(":")
        assert callable(getattr(__import__(module, fromlist=[name]), name))


def test_the_cache_suite_asserts_what_it_times():
    report = cache_hit(repeat=1)
    assert [bar.measure for bar in report.bars] == ["hit / bare read", "one hit"]
    assert all(bar.value > 0 for bar in report.bars)
