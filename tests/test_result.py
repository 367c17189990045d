"""A result is frozen and survives a deep copy; a run is lazy, repeatable, cancellable, and fails loudly."""

from __future__ import annotations

import copy
import dataclasses
import threading

import pytest
import torch

from atlas_engine.bank.blocks import block_table
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Run, RunState, Step, Verdict

VERDICT = Verdict("atlas", helped=True, sentence="Adapting helped.")


def make_step(index=0, *, of=1, **values):
    return Step(
        index=index, of=of, loss=0.5, losses=(0.5,), lr=0.1, grad_norm=1.0, scores=None, seconds=0.1, **values
    )


@pytest.fixture
def result():
    coefficients = Coefficients.zeros(["cars"], block_table([("w", torch.zeros(2, 2))]))
    recipe = Recipe(coefficients, model="tiny", model_fingerprint="a", bank_fingerprint="b")
    reason = "all 1 steps were taken."
    return AdaptResult(recipe, Outcome.finished, reason, (make_step(),), seconds=1.25, verdict=VERDICT)


def test_a_result_survives_a_deep_copy(result):
    assert copy.deepcopy(result) == result


def test_a_result_is_frozen(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.seconds = 0.0


def test_the_repr_of_a_result_is_one_line(result):
    assert repr(result) == (
        "AdaptResult(finished after 1 steps, 1.2 s, "
        "Recipe(coefficients for tiny, 1 tasks × 1 blocks, seed 0))"
    )


def test_a_snapshot_is_a_copy_and_a_record_has_no_values():
    values = {"lam": torch.ones(1, 2)}
    step = make_step(values=values)
    step.snapshot()["lam"].zero_()
    assert values["lam"].tolist() == [[1.0, 1.0]]
    assert step.record().values is None
    assert step.record() == step


def test_a_result_saves_its_recipe(result, tmp_path):
    result.save(tmp_path / "r.safetensors")
    assert Recipe.load(tmp_path / "r.safetensors") == result.recipe


def test_the_seconds_left_follow_from_the_share_of_the_work_done():
    assert make_step(share=0.25).seconds_left == pytest.approx(0.3)
    assert make_step(share=None).seconds_left is None


# ---- runs


def three_steps(stop):
    for index in range(3):
        if stop.is_set():
            return f"stopped at {index}"
        yield make_step(index, of=3, values={})
    return "finished"


def test_nothing_happens_before_the_first_step_is_asked_for():
    started = []

    def start(stop):
        started.append(True)
        yield from three_steps(stop)

    run = Run(start)
    assert run.state is RunState.ready
    assert not started
    next(iter(run))
    assert started
    assert run.state is RunState.running


def test_a_run_is_iterated_or_drained():
    run = Run(three_steps)
    assert [s.index for s in run] == [0, 1, 2]
    assert run.state is RunState.done
    assert run.result() == "finished"
    assert Run(three_steps).result() == "finished"


def test_iterating_again_repeats_the_steps_and_continues_the_run():
    run = Run(three_steps)
    assert next(iter(run)).index == 0
    assert [s.index for s in run] == [0, 1, 2]
    assert [s.index for s in run] == [0, 1, 2]
    assert run.history == tuple(make_step(index, of=3, values={}).record() for index in range(3))


def test_two_iterators_at_once_share_the_steps():
    run = Run(three_steps)
    pairs = list(zip(run, run, strict=True))
    assert [(a.index, b.index) for a, b in pairs] == [(0, 0), (1, 1), (2, 2)]


def test_a_result_may_be_asked_for_in_the_middle():
    run = Run(three_steps)
    for one in run:
        if one.index == 1:
            assert run.result() == "finished"
    assert len(run.history) == 3


def test_cancel_ends_the_run_with_a_result():
    run = Run(three_steps)
    next(iter(run))
    run.cancel()
    assert run.result() == "stopped at 1"


def test_cancel_before_the_start_is_no_error():
    run = Run(three_steps)
    run.cancel()
    assert run.result() == "stopped at 0"


def test_cancel_from_another_thread_reaches_a_run_in_the_middle_of_a_step():
    inside = threading.Event()

    def start(stop):
        yield make_step(0, of=3, values={})
        inside.set()
        assert stop.wait(timeout=10)
        return "stopped"

    run = Run(start)
    helper = threading.Thread(target=lambda: (inside.wait(timeout=10), run.cancel()))
    helper.start()
    assert run.result() == "stopped"
    helper.join()


def test_many_threads_may_iterate_and_each_gets_every_step():
    run, seen = Run(three_steps), []
    threads = [threading.Thread(target=lambda: seen.append([s.index for s in run])) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[0, 1, 2]] * 5


def test_an_error_in_a_step_fails_the_run_and_is_raised_again():
    def start(stop):
        yield make_step(0, of=3, values={})
        raise ValueError("broken")

    run = Run(start)
    with pytest.raises(ValueError, match="broken"):
        list(run)
    assert run.state is RunState.failed
    assert len(run.history) == 1
    with pytest.raises(ValueError, match="broken"):
        run.result()
    assert next(iter(run)).index == 0, "steps taken before the error can be repeated"


def test_an_error_before_the_first_step_fails_the_run_as_well():
    def start(stop):
        raise ValueError("no images")

    run = Run(start)
    with pytest.raises(ValueError, match="no images"):
        run.result()
    assert run.state is RunState.failed
    assert repr(run) == "Run(failed, 0 steps taken)"
