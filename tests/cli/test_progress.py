"""Progress goes to stderr: one line that is redrawn on a terminal, a line now and then in a log."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading

import pytest

from atlas_engine.cli.progress import ProgressBar, run_with_progress
from atlas_engine.result import Run, Step


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch):
    """The clock that bars go by."""
    clock = Clock()
    monkeypatch.setattr("tqdm.std.time", clock)
    return clock


def on(monkeypatch, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_log_gets_a_line_every_ten_seconds(clock, monkeypatch):
    stream = on(monkeypatch, io.StringIO())
    with ProgressBar(350, "step") as progress:
        for _ in range(350):
            clock.seconds += 0.1
            progress.advance(note="loss 0.5\x1b")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert "\r" not in stream.getvalue()
    assert lines[1].startswith("step: 20")
    assert "/350 [00:20<00:" in lines[1]
    assert lines[1].endswith(", loss 0.5\ufffd]")


def test_a_log_of_work_without_an_end_counts_on(clock, monkeypatch):
    stream = on(monkeypatch, io.StringIO())
    with ProgressBar(None, "checking") as progress:
        for _ in range(3):
            clock.seconds += 11
            progress.advance()
    assert [line.partition(" [")[0] for line in stream.getvalue().splitlines()] == [
        "checking: 1it",
        "checking: 2it",
        "checking: 3it",
    ]


def test_a_terminal_has_one_line_that_is_redrawn_and_wiped_at_the_end(clock, monkeypatch):
    stream = on(monkeypatch, Terminal())
    with ProgressBar(3, "reading") as progress:
        for _ in range(3):
            clock.seconds += 1
            progress.advance()
        progress.advance(0, note="cat.jpg")
        clock.seconds += 1
        progress.advance(0, note="dog.jpg")
    drawn = stream.getvalue()
    assert "\n" not in drawn
    assert "reading:  33%" in drawn
    assert "1/3 [00:01<00:02" in drawn
    assert "dog.jpg" in drawn
    assert drawn.split("\r")[-2].strip() == ""


def test_short_work_leaves_no_trace(clock, monkeypatch):
    for stream in (Terminal(), io.StringIO()):
        on(monkeypatch, stream)
        with ProgressBar(3, "step") as progress:
            progress.advance(3)
        assert stream.getvalue() == ""


def test_no_thread_watches_over_a_bar(monkeypatch):
    on(monkeypatch, Terminal())
    before = threading.active_count()
    with ProgressBar(3, "step"):
        assert threading.active_count() == before


def test_ctrl_c_ends_a_run_and_keeps_its_result(capsys):
    def steps(stop: threading.Event):
        for index in range(1000):
            if stop.is_set():
                return f"kept after {index}"
            if index == 3:
                os.kill(os.getpid(), signal.SIGINT)
            yield Step(index, 1000, 1.0, (1.0,), 0.1, 1.0, None, 0.0)
        return "never stopped"

    before = signal.getsignal(signal.SIGINT)
    assert run_with_progress(Run(steps)) == "kept after 4"
    assert "Ctrl-C again" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
