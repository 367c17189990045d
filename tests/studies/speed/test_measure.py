"""Timings are fair and checked; a report says what was timed, and a missed bar fails the command."""

from __future__ import annotations

import json
import mmap
import socket
import sys
import time

import pytest

from atlas_engine.cli import main
from atlas_engine.errors import ConfigError, EvalError
from studies.speed import suites
from studies.speed.cache_hit import cache_hit
from studies.speed.measure import Timing, TimingComparison, compare, measure
from studies.speed.report import Bar, Report, render
from studies.speed.suites import Suite, choose


def test_a_sleep_is_timed_as_long_as_it_sleeps():
    timing = measure(lambda: time.sleep(0.01) or 7, check=lambda answer: answer == 7, warmup=1, repeat=5)
    assert timing.n == 5
    assert 0.01 <= timing.median_seconds < 1.0  # a busy machine may wake us late, never early
    assert timing.spread_seconds >= 0
    assert "ms ± " in str(timing)


def test_candidates_take_turns_and_have_the_same_budget():
    calls = []
    compare(
        {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")},
        check=lambda answer: answer is None,
        warmup=1,
        repeat=3,
    )
    assert "".join(calls[:8]) == "ab" + "ba" + "ab" + "ba"
    assert sorted(calls[8:]) == ["a", "b"], "one more call each, for the memory"


def test_the_ratio_is_the_median_over_rounds_so_that_a_slow_while_slows_both():
    ours, baseline = (0.2, 0.8, 2.0), (0.1, 0.4, 1.0)  # the machine became slower and slower
    times = TimingComparison(
        {"ours": Timing(0.8, 0.0, 3, None, ours), "baseline": Timing(0.4, 0.0, 3, None, baseline)}
    )
    assert times.ratio("ours", "baseline") == pytest.approx(2.0)
    odd = TimingComparison(
        {"ours": Timing(0.8, 0.0, 3, None, ours), "odd": Timing(0.4, 0.0, 3, None, (0.1, 0.4, 9))}
    )
    assert odd.ratio("ours", "odd") == pytest.approx(2.0), "one odd round does not count"


def test_a_wrong_answer_stops_the_benchmark():
    with pytest.raises(EvalError, match="'it' gave a wrong answer"):
        measure(lambda: 6, check=lambda answer: answer == 7)


@pytest.mark.parametrize("options", [{"repeat": 0}, {"warmup": -1}])
def test_an_empty_budget_is_refused(options):
    with pytest.raises(ConfigError, match="repeat of 1 or more"):
        measure(lambda: 1, check=bool, **options)


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_the_peak_sees_memory_that_is_gone_at_the_end():
    def hold_and_drop() -> bool:
        with mmap.mmap(-1, 64 * 2**20) as block:  # the system's own: the allocator may hold some of its own
            block.write(b"\x01" * len(block))
            time.sleep(0.2)
            return len(block) > 0

    big = measure(hold_and_drop, check=bool, warmup=0, repeat=1)
    small = measure(lambda: True, check=bool, warmup=0, repeat=1)
    assert (
        big.peak_nbytes - small.peak_nbytes > 48 * 2**20
    )  # of 64 MiB; other memory may come and go meanwhile


def test_a_bar_knows_its_side():
    assert Bar("ratio", 1.0, "<=", 1.0).passed
    assert not Bar("ratio", 1.1, "<=", 1.0).passed
    assert Bar("speed", 1.1, ">=", 1.0).passed
    assert not Bar("speed", 0.9, ">=", 1.0).passed
    assert not Bar("speed", float("nan"), ">=", 1.0).passed


def report_with(value: float) -> Report:
    return Report(
        "toy", "nothing at all", "the speed of light", (Bar("ratio", value, "<=", 1.0, "×"),), {"seed": "0"}
    )


def test_a_report_is_a_card_a_table_and_a_json_line():
    text = render(report_with(0.5))
    *card, _, header, row, _, line = text.rstrip().splitlines()
    assert card[0] == "# toy"
    assert any("timed" in fact and "nothing at all" in fact for fact in card)
    assert header.split() == ["measure", "value", "bar", "unit", "passed"]
    assert row.split() == ["ratio", "0.5", "<=", "1", "×", "yes"]
    assert json.loads(line)["bars"][0]["passed"] is True
    assert "threads" in text
    assert "torch" in text


def test_a_report_names_no_host():
    assert socket.gethostname() not in render(report_with(0.5))


def met() -> Report:
    return report_with(0.5)


def missed() -> Report:
    return report_with(float("nan"))


@pytest.mark.parametrize(("function", "code"), [("met", 0), ("missed", 1)])
def test_the_exit_code_of_bench_tells_whether_the_bars_are_met(function, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(suites, "SUITES", (Suite("toy", "nothing", f"{__name__}:{function}"),))
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
