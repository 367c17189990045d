"""A Ray cluster of two nodes on this machine: the answers of this process bit for bit, though a node is lost.

The tests share one cluster, and the last of them kills a node in the middle of its work.
"""

from __future__ import annotations

import os
import stat
import threading
import time

import pytest

from atlas_engine.bank.bank_file import load_bank
from atlas_engine.cli import main
from atlas_engine.cluster import LOOPBACK, ensure_token, on_loopback, private_address
from atlas_engine.errors import ExecutorError, SupportError
from atlas_engine.executors import Ledger, open_executor, run_tasks
from tests.drawn import ROOT, write_pictures
from tests.executors import tiny_tasks
from tests.executors.tasks import die_once, number_tasks, refuse_odd, square, wait_for_ever

pytestmark = pytest.mark.ray

STORE_NBYTES = 80 * 2**20
QUICK = {"steps": 6, "batch": 4, "lr": 0.01, "warm-up": 1, "measure-every": 3, "save-every": 2}


@pytest.fixture(scope="module")
def marks(tmp_path_factory):
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, marks, ray_turn):
    """Two nodes of one core each, to which this process is connected."""
    settings = {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(tmp_path_factory.mktemp("token") / "token"),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "ATLAS_TEST_MARKS": str(marks),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        ensure_token()
        ray = pytest.importorskip("ray", reason='Ray is not installed: pip install "atlas-studio[ray]"')
        from ray._raylet import AuthenticationTokenLoader, Config
        from ray.cluster_utils import Cluster

        Config.initialize("")  # for other tests may have imported Ray before
        AuthenticationTokenLoader.instance().reset_cache()

        node = {"num_cpus": 1, "object_store_memory": STORE_NBYTES, "node_ip_address": LOOPBACK}
        with on_loopback(ray):
            nodes = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
            ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")  # joins the head
            nodes.lost = nodes.add_node(**node)
        try:
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()


@pytest.fixture(scope="module")
def executor(cluster):
    with open_executor("ray", threads=1) as opened:
        yield opened


@pytest.fixture
def tiny(monkeypatch):
    """Every model that is opened is the small one, here and in the workers."""
    tiny_tasks.use(monkeypatch)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name, classes in {
        "one": ("red", "blue"), "two": ("red", "dark_green"), "three": ("blue", "dark_green"),
        "four": ("red", "blue", "dark_green"),
    }.items():  # fmt: skip
        write_pictures(root / name, dict.fromkeys(classes, 6))
    return [root / name for name in ("one", "two", "three", "four")]


def test_order_errors_and_what_is_done_are_as_in_this_process(executor, tmp_path):
    ledger = Ledger(tmp_path / "ledger")
    done = list(run_tasks(number_tasks(square, tmp_path), executor=executor, ledger=ledger))
    assert [one.facts for one in done] == [{"number": n, "threads": 1} for n in range(4)]
    with open_executor("local", threads=1) as here:
        local = list(run_tasks(number_tasks(square, tmp_path), executor=here, ledger=Ledger()))
    assert [one.tensors() for one in done] == [one.tensors() for one in local]
    again = run_tasks(number_tasks(square, tmp_path), executor=executor, ledger=Ledger(tmp_path / "ledger"))
    assert [one.fresh for one in again] == [False] * 4
    with pytest.raises(SupportError, match=r"task 1: 1 is odd. Give an even one. \(1 more failed.\)"):
        list(run_tasks(number_tasks(refuse_odd, tmp_path), executor=executor, ledger=Ledger()))


def test_a_worker_that_dies_costs_only_its_task(executor, tmp_path):
    done = run_tasks(number_tasks(die_once, tmp_path, count=2), executor=executor, ledger=Ledger())
    assert [one.facts["number"] for one in done] == [0, 1]
    assert sorted(path.name.split(".")[0] for path in tmp_path.iterdir()) == [
        "died 0", "died 1", "ran 0", "ran 1",
    ]  # fmt: skip


def test_leaving_early_stops_what_is_under_way_and_keeps_what_is_done(executor, tmp_path):
    marks, ledger = tmp_path / "marks", Ledger(tmp_path / "ledger")
    marks.mkdir()
    work = run_tasks(number_tasks(wait_for_ever, marks, count=3), executor=executor, ledger=ledger)
    assert [next(work).facts["number"], next(work).facts["number"]] == [0, 1]
    (mark,) = wait_for(lambda: list(marks.glob("pid *")), count=1)
    pid = int(mark.name.split(".")[0].removeprefix("pid "))
    work.close()
    wait_for(lambda: [] if is_alive(pid) else [pid], count=1)
    assert len(Ledger(tmp_path / "ledger")) == 2


def test_features_are_the_same(cluster, tiny, folders, tmp_path, monkeypatch):
    monkeypatch.setattr("atlas_engine.jobs.features.feature_tasks.__kwdefaults__", {"chunk": 5})
    written = []
    for on in ("local", "ray"):
        out = tmp_path / f"{on}.safetensors"
        assert main(["features", str(folders[3]), "-o", str(out), "--on", on]) == 0
        written.append((out.read_bytes(), out.with_suffix(".names.txt").read_text()))
    assert written[0] == written[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "local.names.txt", "local.safetensors", "ray.names.txt", "ray.safetensors",
    ]  # fmt: skip


def test_a_bank_and_a_grid_are_the_same_though_a_node_is_lost(
    cluster, tiny, folders, tmp_path, marks, capsys, monkeypatch
):
    quick = [word for flag, n in QUICK.items() for word in (f"--{flag}", str(n))]
    grid = [
        "--methods",
        "zero-shot,lpp,lora",
        "--shots",
        "1,3",
        "--seeds",
        "2",
        "--steps",
        "2",
        "--batch",
        "4",
    ]
    names = list(map(str, folders))

    def train(on):
        assert (
            main(["bank", "train", *names, *quick, "-o", str(tmp_path / f"{on}.safetensors"), "--on", on])
            == 0
        )

    def measure(on):
        assert (
            main(["eval", "few-shot", *names[:2], *grid, "--json", str(tmp_path / f"{on}.json"), "--on", on])
            == 0
        )

    monkeypatch.delenv("ATLAS_TEST_MARKS")  # no waiting here
    train("local")
    measure("local")
    for mark in marks.iterdir():
        mark.unlink()
    killer = threading.Thread(target=kill_in_the_middle, args=(cluster, marks))
    killer.start()
    train("ray")
    measure("ray")
    killer.join()
    assert len(cluster.list_all_nodes()) == 1
    began = len(list(marks.iterdir()))
    assert 8 < began <= 8 + 2, "four vectors and four parts of the grid, and what the lost node worked on"

    assert (tmp_path / "ray.safetensors").read_bytes() == (tmp_path / "local.safetensors").read_bytes()
    assert load_bank(tmp_path / "ray.safetensors").tasks == ("one", "two", "three", "four")
    assert rows(tmp_path / "ray.json") == rows(tmp_path / "local.json")

    measure("ray")
    assert len(list(marks.iterdir())) == began, "what is done costs nothing"


def kill_in_the_middle(cluster, marks):
    """Lose the second node while both have begun a task."""
    wait_for(lambda: list(marks.iterdir()), count=2)
    cluster.remove_node(cluster.lost, allow_graceful=False)


def rows(path):
    """The rows of a study without the time that each took."""
    import json

    return [
        {name: value for name, value in row.items() if name != "seconds"}
        for row in json.loads(path.read_text())
    ]


def wait_for(find, *, count, seconds=60):
    limit = time.monotonic() + seconds
    while len(found := find()) < count:
        assert time.monotonic() < limit, f"{found} after {seconds} s"
        time.sleep(0.05)
    return found


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


# ---- trust


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        (
            "ray://8.8.8.8:10001",
            "8.8.8.8 is a public address, and whoever reaches a Ray port can run any code",
        ),
        ("ray://[2001:4860:4860::8888]:10001", "is a public address"),
        ("ray://0.0.0.0:10001", "is a public address"),
        ("ray://[::ffff:8.8.8.8]:10001", "is a public address"),
        ("8.8.8.8:6379", "is a public address"),
        ("ray://10.0.0.5", "Give host and port"),
        ("ray://:10001", "Give host and port"),
        ("ray://nowhere.invalid:10001", "cannot be found"),
    ],
)
def test_an_address_that_is_not_private_is_refused(address, sentence):
    with pytest.raises(ExecutorError, match=sentence):
        private_address(address)


def test_private_addresses_are_taken_as_numbers():
    for address in ("ray://127.0.0.1:10001", "10.1.2.3:6379", "ray://[::1]:10001", "192.168.0.9:1"):
        assert private_address(address) == address
    assert private_address("ray://localhost:10001") in ("ray://127.0.0.1:10001", "ray://[::1]:10001")


def test_a_token_is_made_for_its_owner_alone(tmp_path, monkeypatch):
    file = tmp_path / "new" / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    ensure_token()
    made = file.read_text()
    assert len(made) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o644)
    ensure_token()
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (made, 0o600)
