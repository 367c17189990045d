"""Stop signals: they reach the visitor's own run and no other, also in a process that was forked for it."""

from __future__ import annotations

import multiprocessing
import time

import pytest

import atlas_engine as atlas
from app.session import Runs, StopSignal

SECONDS = 30  # for a child to begin or to end, which takes it a moment
fork = multiprocessing.get_context("fork")


def long_run():
    """A run of the engine's own kind that ends when it is asked to, and counts how far it came."""

    def start(stop):
        for index in range(10**6):
            if stop.is_set():
                return index
            yield atlas.Step(index, 10**6, 0.0, (0.0,), 0.1, 0.0, None, 0.01 * index)
            time.sleep(0.01)
        return None

    return atlas.Run(start)


def in_fork(runs, session, told):
    """As on ZeroGPU: the signal is made where the run is, in the child."""
    with runs.begin(session) as stop_signal:
        told.put("begun")
        run = long_run()
        for _ in stop_signal.follow(run):
            pass
        told.put(run.result())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_stop_reaches_a_run_in_a_forked_process_and_no_other():
    runs = Runs()
    told = {name: fork.Queue() for name in ("ann", "bob")}
    children = [fork.Process(target=in_fork, args=(runs, name, told[name])) for name in told]
    for child in children:
        child.start()
    for queue in told.values():
        assert queue.get(timeout=SECONDS) == "begun"
    assert not runs.stop("eve")
    assert runs.stop("ann")
    assert told["ann"].get(timeout=SECONDS) is not None
    assert told["bob"].empty()
    assert runs.stop("bob")
    assert told["bob"].get(timeout=SECONDS) is not None
    for child in children:
        child.join(timeout=SECONDS)
        assert child.exitcode == 0
    assert not runs.stop("ann")
    assert list(runs._folder.iterdir()) == []


def test_a_run_leaves_nothing_behind_and_its_file_tells_nothing_of_the_visitor():
    runs = Runs()
    session = "../../a-session"
    with runs.begin(session):
        (file,) = runs._folder.iterdir()
        assert "session" not in file.name
        assert file.read_bytes() == b""
        assert file.stat().st_mode & 0o077 == 0 or runs._folder.stat().st_mode & 0o077 == 0
    assert list(runs._folder.iterdir()) == []
    folder = runs._folder
    del runs
    assert not folder.exists()


def test_a_folder_that_was_swept_away_is_made_again():
    runs = Runs()
    runs._folder.rmdir()
    with runs.begin("ann") as stop_signal:
        assert not stop_signal.is_set
        assert runs.stop("ann")
        assert stop_signal.is_set
    assert not runs.stop("ann")


def test_a_signal_that_is_set_before_the_run_ends_it_at_once():
    stop_signal, run = StopSignal(), long_run()
    stop_signal.set()
    assert list(stop_signal.follow(run)) == []
    assert run.result() == 0
