"""The simulated queue: closed forms of queueing theory, and the waits of a recorded load test."""

from __future__ import annotations

import json
import random

import pytest

from atlas_engine.cli.main import main
from atlas_engine.errors import EvalError
from studies.capacity import draw_services, lanes_needed, poisson_arrivals, predict_crowd, simulate


def test_visitors_at_once_are_served_one_after_another():
    outcome = simulate([0, 0, 0, 0], [2, 2, 2, 2], lanes=1)
    assert outcome.waits == (0, 2, 4, 6)
    assert simulate([0, 0, 0, 0], [2, 2, 2, 2], lanes=2).waits == (0, 0, 2, 2)
    assert outcome.busy_share == 1.0


def test_a_visitor_who_finds_the_queue_full_is_refused():
    outcome = simulate([0, 0.1, 0.2, 0.3, 5.5], [5, 5, 5, 5, 5], lanes=1, most_waiting=2)
    assert outcome.refused == 1  # the fourth: one is served and two wait
    assert outcome.waits == pytest.approx((0, 4.9, 9.8, 9.5))
    assert outcome.refused_share == 0.2


def test_a_cold_lane_is_of_use_once_it_is_open():
    assert simulate([0, 1], [10, 10], lanes=2, ready=[0, 4]).waits == (0, 3)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_mean_waits_are_those_of_queueing_theory(load):
    """Poisson arrivals, one lane: ρ s / (1 − ρ) for exponential service, half of it for constant service."""
    arrivals = poisson_arrivals(per_hour=3600 * load, hours=60, seed=1)
    draw = random.Random(2)
    exponential = simulate(arrivals, [draw.expovariate(1.0) for _ in arrivals], lanes=1).mean_wait
    constant = simulate(arrivals, [1.0] * len(arrivals), lanes=1).mean_wait
    theory = load / (1 - load)
    # over 100,000 visitors the mean is within some per cent, more at a high load, where waits go together
    assert exponential == pytest.approx(theory, rel=0.1)
    assert constant == pytest.approx(theory / 2, rel=0.1)


def test_two_lanes_wait_as_erlang_says():
    """M/M/2 at load 0.75 of each lane: mean wait s ρ² / (1 − ρ²)."""
    arrivals = poisson_arrivals(per_hour=3600 * 1.5, hours=60, seed=3)
    draw = random.Random(4)
    found = simulate(arrivals, [draw.expovariate(1.0) for _ in arrivals], lanes=2).mean_wait
    assert found == pytest.approx(0.75**2 / (1 - 0.75**2), rel=0.1)


def test_the_fewest_lanes_keep_the_promise_and_one_less_does_not():
    lanes, outcome = lanes_needed([4.0, 6.0], per_hour=2000, hours=4, most_wait=10, share=0.95, seed=0)
    assert outcome.wait_at(0.95) <= 10
    arrivals = poisson_arrivals(per_hour=2000, hours=4, seed=0)
    services = draw_services([4.0, 6.0], len(arrivals), seed=0)
    assert simulate(arrivals, services, lanes=lanes - 1).wait_at(0.95) > 10


def test_a_load_test_without_visits_is_refused():
    with pytest.raises(EvalError, match="no visits"):
        predict_crowd({"name": "crowd"})


def test_the_command_prints_the_lanes_that_each_stream_needs(capsys, tmp_path):
    out = tmp_path / "capacity.json"
    assert main(["eval", "capacity", "--seconds", "5", "--hours", "1", "--json", str(out)]) == 0
    assert "visitors/hour" in capsys.readouterr().out
    rows = json.loads(out.read_text(encoding="utf-8"))["rows"]
    assert [row["per_hour"] for row in rows] == [100, 1000, 10000]
    assert rows[0]["lanes"] <= rows[1]["lanes"] < rows[2]["lanes"]
    assert main(["eval", "capacity"]) == 2
