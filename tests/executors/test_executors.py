"""One interface, three rows: what every executor promises. Ray's own promises are in `test_ray.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from atlas_engine.errors import ConfigError, EvalError, ExecutorError, SupportError
from atlas_engine.executors import Ledger, Task, open_executor, run_tasks
from atlas_engine.executors.task import pack_task, perform, unpack_answer
from tests.drawn import ROOT
from tests.executors.tasks import (
    die,
    die_once,
    divide,
    number_tasks,
    refuse_odd,
    square,
)


@pytest.fixture(scope="module", params=["local", "processes:2"])
def executor(request):
    with open_executor(request.param, threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def processes():
    with open_executor("processes:2", threads=1) as opened:
        yield opened


def run(tasks, executor, ledger=None, **more):
    return list(run_tasks(tasks, executor=executor, ledger=Ledger() if ledger is None else ledger, **more))


def ran(folder):
    return sorted(path.name.split(".")[0] for path in folder.iterdir())


def test_answers_come_in_the_order_of_the_tasks(executor, tmp_path):
    ended = []
    tasks = number_tasks(square, tmp_path)
    done = run(tasks, executor, on_end=lambda task: ended.append(task.note))
    assert [one.facts["number"] for one in done] == [0, 1, 2, 3]
    squares = [safetensors.torch.load(one.tensors())["square"].item() for one in done]
    assert squares == [0, 1, 4, 9]
    assert sorted(ended) == [task.note for task in tasks]
    assert all(one.fresh for one in done)


def test_tasks_end_in_another_order_where_they_are_side_by_side(processes, tmp_path):
    run(number_tasks(square, tmp_path, count=2), processes)  # both workers have started
    ended = []
    run(number_tasks(square, tmp_path), processes, on_end=lambda task: ended.append(task.note))
    assert ended[0] != "task 0", "it takes longest"


def test_every_task_has_the_threads_that_were_asked_for(executor, tmp_path):
    before = torch.get_num_threads()
    assert {one.facts["threads"] for one in run(number_tasks(square, tmp_path), executor)} == {1}
    with open_executor("local", threads=before + 1) as more:
        assert {one.facts["threads"] for one in run(number_tasks(square, tmp_path), more)} == {before + 1}
    assert torch.get_num_threads() == before


def test_what_is_done_is_not_done_again(executor, tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    tasks = number_tasks(square, marks)
    first = run(tasks[:3], executor, Ledger(tmp_path / "ledger"))
    again = run(tasks, executor, Ledger(tmp_path / "ledger"))
    assert [one.fresh for one in again] == [False, False, False, True]
    assert [one.tensors() for one in again[:3]] == [one.tensors() for one in first]
    assert ran(marks) == ["ran 0", "ran 1", "ran 2", "ran 3"]


def test_one_key_is_carried_out_once(executor, tmp_path):
    (task,) = number_tasks(square, tmp_path, count=1)
    assert [one.facts["number"] for one in run([task, task], executor)] == [0, 0]
    assert ran(tmp_path) == ["ran 0"]


def test_a_task_that_fails_stops_no_other_and_keeps_its_error(executor, tmp_path):
    marks, ledger = tmp_path / "marks", Ledger(tmp_path / "ledger")
    marks.mkdir()
    with pytest.raises(SupportError, match=r"task 1: 1 is odd. Give an even one. \(1 more failed.\)"):
        run(number_tasks(refuse_odd, marks, count=5), executor, ledger)
    assert ran(marks) == ["ran 0", "ran 2", "ran 4"]
    assert len(Ledger(tmp_path / "ledger")) == 3


def test_a_mistake_in_a_task_is_told_with_its_place(executor, tmp_path):
    with pytest.raises(ExecutorError, match="task 0: unexpected ZeroDivisionError in divide, line"):
        run(number_tasks(divide, tmp_path), executor)


def test_nothing_to_do_starts_nothing():
    with open_executor("processes:2") as executor:
        assert run([], executor) == []
        assert executor._workers == []


def test_a_worker_that_dies_costs_only_its_task(processes, tmp_path):
    tasks = [*number_tasks(die_once, tmp_path, count=1), *number_tasks(square, tmp_path)]
    assert [one.facts["number"] for one in run(tasks, processes)] == [0, 0, 1, 2, 3]
    assert ran(tmp_path) == ["died 0", "ran 0", "ran 0", "ran 1", "ran 2", "ran 3"]


def test_a_task_that_kills_every_worker_is_given_up(processes, tmp_path):
    tasks = [*number_tasks(die, tmp_path, count=1), *number_tasks(square, tmp_path)]
    with pytest.raises(ExecutorError, match="3 processes died over this task, the last with code -9"):
        run(tasks, processes)
    assert ran(tmp_path) == ["ran 0", "ran 1", "ran 2", "ran 3"]


def test_ctrl_c_leaves_a_clean_state(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    code = (
        "from atlas_engine.executors import Ledger, open_executor, run_tasks\n"
        "from tests.executors.tasks import number_tasks, wait_for_ever\n"
        "with open_executor('processes:2') as executor:\n"
        f"    list(run_tasks(number_tasks(wait_for_ever, {str(marks)!r}), executor=executor,"
        f" ledger=Ledger({str(tmp_path / 'ledger')!r})))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    ) as command:
        workers = wait_for(lambda: pids(marks), count=2)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
        _, err = command.communicate(timeout=60)
    assert b"KeyboardInterrupt" in err
    assert not [pid for pid in workers if is_alive(pid)]
    assert len(Ledger(tmp_path / "ledger")) == 2
    left = [path.name for path in tmp_path.iterdir()]
    assert sorted(left) == ["ledger", "marks"]


def wait_for(find, *, count, seconds=60):
    limit = time.monotonic() + seconds
    while len(found := find()) < count:
        assert time.monotonic() < limit, f"{found} after {seconds} s"
        time.sleep(0.05)
    return found


def pids(folder: Path):
    return [int(path.name.split(".")[0].removeprefix("pid ")) for path in folder.glob("pid *")]


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- messages


def test_a_task_is_json_and_has_a_function_of_a_module(tmp_path):
    with pytest.raises(TypeError, match="needs a function of a module"):
        pack_task(Task("k", "n", lambda: None, {}), threads=1)
    with pytest.raises(TypeError, match="JSON serializable"):
        pack_task(Task("k", "n", square, {"number": 1, "folder": tmp_path}), threads=1)


def test_a_worker_of_another_version_is_refused(tmp_path):
    (task,) = number_tasks(square, tmp_path, count=1)
    message = pack_task(task, threads=1).replace(b'"torch": "', b'"torch": "0.')
    with pytest.raises(ExecutorError, match="but the run was started with 0"):
        unpack_answer(perform(message))
    assert ran(tmp_path) == []


def test_a_reply_is_bytes_that_no_pickle_is_read_from(tmp_path):
    (task,) = number_tasks(square, tmp_path, count=1)
    reply = perform(pack_task(task, threads=1))
    assert unpack_answer(reply).facts["number"] == 0
    with pytest.raises(ExecutorError, match=r"^x$"):  # a name that is no error of ours
        unpack_answer(reply_of(b'{"error": ["SystemExit", "x"]}'))


def reply_of(text):
    return len(text).to_bytes(8, "little") + text


# ---- names, and the ledger's tensors


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("proceses", "Did you mean 'processes'"),
        ("processes:0", "a whole number of at least 1"),
        ("processes:many", "a whole number of at least 1"),
        ("local:2", "local takes nothing behind it"),
        ("ray:10.0.0.5", "Write it as ray://"),
    ],
)
def test_a_name_that_is_none_is_one_sentence(name, sentence):
    with pytest.raises(ConfigError, match=sentence):
        open_executor(name)


def test_threads_are_at_least_one():
    with pytest.raises(ConfigError, match="must be at least 1"):
        open_executor("local", threads=0)


def test_a_row_of_another_version_does_not_count(tmp_path):
    path = tmp_path / "rows"
    Ledger(path).put("a", {"n": 1})
    lines = path.read_text()
    path.write_text(lines + '{"key": "old", "code": "0.0.1", "n": 2}\n{"key": "before", "n": 3}\n')
    ledger = Ledger(path)
    assert (ledger.get("a"), ledger.get("old"), ledger.get("before")) == ({"n": 1}, None, {"n": 3})


def test_tensors_lie_beside_the_ledger_until_it_is_removed(tmp_path):
    ledger = Ledger(tmp_path / "rows")
    ledger.put("a", {"n": 1}, b"tensors")
    assert Ledger(tmp_path / "rows").tensors("a") == b"tensors"
    assert Ledger().put("a", {}, b"tensors") == {}
    ledger.remove()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "rows.tensors").write_text("a file in the way")
    with pytest.raises(EvalError, match="cannot write"):
        Ledger(tmp_path / "rows").put("a", {"n": 1}, b"tensors")
