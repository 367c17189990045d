"""A run is lazy, can be told twice, stopped from anywhere, and says so when it has failed."""

from __future__ import annotations

import threading

import pytest

from atlas_engine.result import Run, RunState, Step


def step(index):
    return Step(
        index=index, of=3, loss=1.0, losses=(1.0,), lr=0.1, grad_norm=1.0, scores=None, seconds=0.0, values={}
    )


def three(stop):
    for index in range(3):
        if stop.is_set():
            return f"stopped at {index}"
        yield step(index)
    return "finished"


def test_nothing_happens_before_the_first_step_is_asked_for():
    begun = []

    def start(stop):
        begun.append(True)
        yield from three(stop)

    run = Run(start)
    assert run.state is RunState.ready
    assert not begun
    next(iter(run))
    assert begun
    assert run.state is RunState.running


def test_a_run_is_iterated_or_drained():
    run = Run(three)
    assert [s.index for s in run] == [0, 1, 2]
    assert run.state is RunState.done
    assert run.result() == "finished"
    assert Run(three).result() == "finished"


def test_iterating_twice_tells_the_same_steps_and_goes_on_where_the_run_stands():
    run = Run(three)
    assert next(iter(run)).index == 0
    assert [s.index for s in run] == [0, 1, 2]
    assert [s.index for s in run] == [0, 1, 2]
    assert run.history == tuple(step(index).record() for index in range(3))


def test_two_iterators_side_by_side_share_the_steps():
    run = Run(three)
    pairs = list(zip(run, run, strict=True))
    assert [(a.index, b.index) for a, b in pairs] == [(0, 0), (1, 1), (2, 2)]


def test_a_result_may_be_asked_for_in_the_middle():
    run = Run(three)
    for one in run:
        if one.index == 1:
            assert run.result() == "finished"
    assert len(run.history) == 3


def test_cancel_ends_the_run_and_its_result_tells():
    run = Run(three)
    next(iter(run))
    run.cancel()
    assert run.result() == "stopped at 1"


def test_cancel_before_the_start_is_no_error():
    run = Run(three)
    run.cancel()
    assert run.result() == "stopped at 0"


def test_cancel_from_another_thread_reaches_a_run_in_the_middle_of_a_step():
    inside = threading.Event()

    def start(stop):
        yield step(0)
        inside.set()
        assert stop.wait(timeout=10)
        return "stopped"

    run = Run(start)
    helper = threading.Thread(target=lambda: (inside.wait(timeout=10), run.cancel()))
    helper.start()
    assert run.result() == "stopped"
    helper.join()


def test_many_threads_may_iterate_and_each_hears_every_step():
    run, heard = Run(three), []
    threads = [threading.Thread(target=lambda: heard.append([s.index for s in run])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert heard == [[0, 1, 2]] * 5


def test_an_error_in_a_step_leaves_a_failed_run_that_keeps_saying_so():
    def start(stop):
        yield step(0)
        raise ValueError("broken")

    run = Run(start)
    with pytest.raises(ValueError, match="broken"):
        list(run)
    assert run.state is RunState.failed
    assert len(run.history) == 1
    with pytest.raises(ValueError, match="broken"):
        run.result()
    assert next(iter(run)).index == 0, "what it had told can be told again"


def test_an_error_before_the_first_step_fails_the_run_as_well():
    def start(stop):
        raise ValueError("no images")

    run = Run(start)
    with pytest.raises(ValueError, match="no images"):
        run.result()
    assert run.state is RunState.failed
    assert repr(run) == "Run(failed, 0 steps taken)"
