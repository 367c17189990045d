"""A baseline in a process of its own: fresh, asked in turns, and missed when it dies."""

from __future__ import annotations

import mmap
import os
import sys
import time

import pytest
import torch

from atlas_engine.errors import EvalError
from studies.speed.separate import SeparateProcess, extra_nbytes

BLOCK_NBYTES = 64 * 2**20
seen: list[int] = []


def calls(factor):
    count = [0]

    def numbered():
        count[0] += factor
        return (torch.tensor([count[0]]),)

    facts = torch.tensor([os.getpid(), len(seen), torch.get_num_threads()])
    return {"numbered": numbered, "facts": lambda: (facts,), "block": hold, "end": lambda: os._exit(3)}


def hold():
    with mmap.mmap(-1, BLOCK_NBYTES) as block:  # the system's own: freed memory of malloc's cannot hide it
        block.write(b"\x01" * BLOCK_NBYTES)
        time.sleep(0.2)
    return (torch.zeros(1),)


def nothing(reason):
    sys.exit(reason)


@pytest.fixture(scope="module")
def other():
    seen.append(1)
    with SeparateProcess(calls, 10) as process:
        yield process


def test_the_process_is_fresh_and_has_as_many_threads(other):
    pid, seen_there, threads = other.run("facts")()[0].tolist()
    assert pid != os.getpid()
    assert seen_there == 0, "a fork would have seen what this process did"
    assert threads == torch.get_num_threads()


def test_what_was_made_is_kept_from_call_to_call(other):
    assert [other.run("numbered")()[0].item() for _ in range(3)] == [10, 20, 30]


def test_an_answer_is_fetched_without_a_further_call(other):
    fetch = other.run("numbered")
    assert fetch()[0].item() == fetch()[0].item()


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_memory_is_measured_in_the_process_that_takes_it(other):
    assert (
        0.75 * BLOCK_NBYTES < other.extra_nbytes("block") < 1.5 * BLOCK_NBYTES
    )  # others come and go meanwhile


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_what_only_the_first_call_takes_is_not_counted():
    kept = []

    def take_once():
        if not kept:
            kept.append(mmap.mmap(-1, BLOCK_NBYTES))
            kept[0].write(b"\x01" * BLOCK_NBYTES)

    assert extra_nbytes(take_once) < 0.25 * BLOCK_NBYTES
    kept[0].close()


def test_a_process_that_ends_too_soon_is_an_error_with_its_exit_code():
    with SeparateProcess(calls, 1) as process, pytest.raises(EvalError, match="exit code 3"):
        process.run("end")


def test_a_process_that_cannot_make_its_functions_is_an_error():
    with pytest.raises(EvalError, match="exit code 4"):
        SeparateProcess(nothing, 4)
