"""A training that was stopped resumes and gives the same bytes; a state of another one is refused."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from atlas_engine.bank.resume import remove_state
from atlas_engine.bank.tensor_file import TensorFile
from atlas_engine.bank.train import fine_tune
from atlas_engine.errors import BankError
from atlas_engine.runtime import drain
from tests.bank.training_tasks import QUICK, conv_tower, training_task
from tests.drawn import ROOT


def run(settings=QUICK, *, state=None, task=None, visual=None):
    return fine_tune(visual or conv_tower(), task or training_task(), settings=settings, state=state)


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize(("kind", "stop"), [("standard", 2), ("standard", 11), ("lora", 6), ("linear", 7)])
def test_an_abandoned_run_resumes_to_the_same_bytes(tmp_path, kind, stop):
    settings = replace(QUICK, kind=kind)
    whole = drain(run(settings))
    first = run(settings, state=tmp_path / "state")
    for _ in range(stop):
        next(first)
    first.close()
    rest = run(settings, state=tmp_path / "state")
    assert next(rest).index == stop // 3 * 3 + 1, "a state is saved every three steps"
    resumed = drain(rest)
    assert same(whole.difference, resumed.difference)
    assert (resumed.best_step, resumed.steps, resumed.val_accuracy) == (
        whole.best_step,
        whole.steps,
        whole.val_accuracy,
    )


def test_a_finished_run_given_again_only_returns_its_result(tmp_path):
    first = drain(run(state=tmp_path / "state"))
    again = run(state=tmp_path / "state")
    with pytest.raises(StopIteration) as end:
        next(again)
    assert same(end.value.value.difference, first.difference)


def test_a_process_killed_in_the_middle_of_a_save_resumes_to_the_same_bytes(tmp_path):
    command = [sys.executable, "-m", "tests.bank.training_tasks", str(tmp_path)]
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }  # sums in the same order as here
    with subprocess.Popen(
        [*command, "3"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "in the middle of a save\n"
        process.kill()
    assert not (tmp_path / "vector").exists()
    with TensorFile(tmp_path / "state", format_name="atlas-training-1") as file:
        assert file.manifest["progress"]["index"] == 6, "the third save was to be of step 9"
    assert len(list(tmp_path.glob(".state.*.part"))) == 1
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=300)
    with TensorFile(tmp_path / "vector", format_name="test") as file:
        assert same(dict(file.read_all()), drain(run()).difference)
    remove_state(tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["vector"]


def test_a_state_of_another_training_is_refused_and_stays(tmp_path):
    state = tmp_path / "state"
    next(run(replace(QUICK, save_every=1), state=state))
    before = state.read_bytes()
    moved = copy.deepcopy(conv_tower())
    with torch.no_grad():
        moved[0].weight[0, 0, 0, 0] += 1
    task = training_task()
    others = {
        "lr 0.01, not 0.001": {"settings": replace(QUICK, lr=1e-3)},
        "seed 0, not 1": {"settings": replace(QUICK, seed=1)},
        "another base model": {"visual": moved},
        "another data": {"task": training_task(train=36)},
        "another head": {"task": replace(task, head=task.head.flip(0))},
    }
    for sentence, given in others.items():
        with pytest.raises(BankError, match=rf"state holds an unfinished training that is not .*{sentence}"):
            next(run(state=state, **given))
    assert state.read_bytes() == before
    assert next(run(state=state)).index == 2, "how often it saves is no part of what a training is"


def test_a_damaged_state_is_refused(tmp_path):
    state = tmp_path / "state"
    next(run(replace(QUICK, save_every=1), state=state))
    data = state.read_bytes()
    state.write_bytes(data[:-9])
    with pytest.raises(BankError, match=r"state should hold an unfinished training, but cannot be read"):
        next(run(state=state))
    state.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BankError, match="checksum"):
        next(run(state=state))
