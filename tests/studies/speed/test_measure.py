"""Timings are fair and checked."""

from __future__ import annotations

import mmap
import sys
import time

import pytest

from atlas_engine.errors import ConfigError, EvalError
from studies.speed.measure import Timing, TimingComparison, compare, measure


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
