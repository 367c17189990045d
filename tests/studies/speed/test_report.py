"""A report says what was timed and which bars are met, as a card, a table and a JSON line."""

from __future__ import annotations

import json
import socket

from studies.speed.report import Bar, Report, render


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


def test_a_report_is_the_same_after_json():
    report = report_with(0.5)
    assert Report.from_dict(json.loads(json.dumps(report.as_dict()))) == report
    missed = Report.from_dict(json.loads(json.dumps(report_with(float("nan")).as_dict())))
    assert not missed.passed, "what is not a number never passes"
    assert missed.as_dict()["bars"][0]["value"] is None
