"""A few visitors at once on the real server; `python -m studies.load_test` sends twenty."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from app.limits import LIMITS
from studies.load_test.promises import Promise, measure_crowd, memory_growth
from studies.load_test.visitors import VisitorRequest, visit, visit_at_once


@pytest.fixture
def adaptation(archive, colours):
    """A short request."""
    sample = min(colours.rglob("*.png"))
    return VisitorRequest(archive, (str(sample),), steps=1, method="atlas+text-probe")


def test_three_visitors_at_once_get_what_each_gets_alone(server, adaptation):
    other = replace(adaptation, seed=1, method="text-probe")
    crowd = measure_crowd(server, [adaptation, other, adaptation])
    promises = crowd.promises
    broken = [one for one in promises if one.unit != "s" and not one.kept]  # no test is held to the clock
    assert broken == []


def test_a_visitor_who_cannot_be_served_is_refused_while_others_are_served(server, adaptation, tmp_path):
    (tmp_path / "words.zip").write_text("only words")
    good, bad = visit_at_once(server.address, [adaptation, VisitorRequest(tmp_path / "words.zip")])
    assert good.served
    assert not bad.served
    assert bad.refusal.startswith("words.zip:")


def test_two_answers_that_differ_are_noticed(server, adaptation):
    alone = visit(server.address, adaptation)
    other = visit(server.address, replace(adaptation, method="text-probe"))
    assert alone.answer != other.answer
    assert alone.answer == visit(server.address, adaptation).answer


def test_memory_is_compared_with_what_it_was_when_warm():
    steady = [(10 * n, 500.0 + 80 * (n < 3)) for n in range(1, 21)]
    filling = [(number, 500.0 + min(number, LIMITS.sessions)) for number in range(10, 201, 10)]
    leaking = [(10 * n, 500.0 + 5 * n) for n in range(1, 21)]
    assert memory_growth(steady).kept
    assert memory_growth(filling).kept, "sessions that are kept are no leak"
    assert not memory_growth(leaking).kept


def test_a_promise_that_was_not_measured_is_not_kept():
    assert not Promise("memory", math.nan, 40).kept
    assert Promise("memory", 40, 40).kept
