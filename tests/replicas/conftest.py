"""The replicas that the tests share: they take half a minute to start."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.replicas.client import ReplicaClient
from tests.drawn import ROOT


@dataclass(frozen=True)
class ServedReplicas:
    """A client of replicas, their token, and the process that started them all."""

    client: ReplicaClient
    token: str
    root: int

    def processes(self, deployment=""):
        """The ids of the replicas' processes: of all, or of one deployment. No others are ever among them."""
        parents = {int(path.name): _parent(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
        name = f"ServeReplica:atlas:{deployment}"
        return [one for one in parents if name in _command(one) and self.root in _ancestors(one, parents)]


def _ancestors(process, parents):
    while process in parents:
        process = parents[process]
        yield process


def _parent(path):
    with suppress(OSError):
        return int((path / "stat").read_text().rpartition(")")[2].split()[1])
    return 0


def _command(process):
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text()
    return ""


@pytest.fixture(scope="module")
def replicas(tmp_path_factory, ray_turn):
    """A client of one replica each of predict and adapt, and two of try."""
    if find_spec("ray") is None:
        pytest.skip('Ray is not installed: pip install "atlas-studio[ray]"')
    folder = tmp_path_factory.mktemp("replicas")
    token = folder / "token"
    # a short path, because those of the sockets in it may have 107 bytes at the most
    files = tempfile.mkdtemp(prefix="ray-")
    environment = {
        **os.environ,
        "RAY_TMPDIR": files,
        "RAY_AUTH_TOKEN_PATH": str(token),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    # Ray gives its node 30 seconds to start, and a busy machine may take longer: one more try
    for _ in range(2):
        process = _start(folder, environment)
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if port.isdigit():
            break
        _stop(process)
    assert port.isdigit(), (folder / "log").read_text()[-3000:]
    client = ReplicaClient("127.0.0.1", int(port), token=token.read_text(), seconds=120)
    yield ServedReplicas(client, token.read_text(), process.pid)
    _stop(process)
    shutil.rmtree(files, ignore_errors=True)


def _start(folder, environment):
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.replicas.served", str(folder / "results")],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )


def _stop(process):
    process.stdin.close()
    process.wait(timeout=60)
    process.stdout.close()
