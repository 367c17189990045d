"""`ray`: tasks on the machines of a Ray cluster.

`ray` joins the cluster that this process is connected to, or that RAY_ADDRESS names, or else starts Ray on
this machine. `ray://HOST:PORT` is a cluster's client port. A node that is lost costs the tasks that it was
working on: Ray carries them out again elsewhere.

Addresses outside of private networks are refused, a token is asked for (RAY_AUTH_MODE=token) and no dashboard
is started (`atlas_engine.cluster`). Tasks and replies travel as bytes
(`task`), but Ray itself pickles: a cluster is one circle of trust.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import override

from atlas_engine.cluster import (
    LOOPBACK,
    ask_for_token,
    ensure_token,
    find_token,
    on_loopback,
    private_address,
)
from atlas_engine.errors import ExecutorError
from atlas_engine.executors.task import Executor, pack_error, perform

__all__ = ["RayExecutor"]

RETRIES = 5  # of a task whose node or worker was lost
AHEAD = 2  # tasks handed out for each core, so that none waits for its next one


class RayExecutor(Executor):
    """A connection to a Ray cluster, or to one that was started on this machine for as long as this lives."""

    name = "ray"

    def __init__(self, *, threads: int | None = None, address: str | None = None, gpus: float = 0.0) -> None:
        """`gpus` is what each task asks for besides its cores: without it, Ray shows a task none."""
        super().__init__(threads or 1)
        self._cores = threads or 1
        self._ray = _import_ray()
        self._ours = not self._ray.is_initialized()
        if self._ours:
            _connect(self._ray, address)
        elif address is not None:
            raise ExecutorError(f"this process is connected to a Ray cluster already: leave out {address}.")
        remote = self._ray.remote(perform)
        self._perform = remote.options(num_cpus=self._cores, num_gpus=gpus, max_retries=RETRIES)

    @override
    def run(self, messages: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        ray, waiting = self._ray, enumerate(messages)
        positions: dict[Any, int] = {}  # of what is under way
        try:
            while True:
                while len(positions) < self._room() and (found := next(waiting, None)) is not None:
                    positions[self._perform.remote(found[1])] = found[0]
                if not positions:
                    return
                ended, _ = ray.wait(list(positions), num_returns=1)
                for reference in ended:
                    position = positions.pop(reference)
                    yield position, self._fetch(reference)
        finally:
            # closed before its end: what is under way is stopped
            for reference in positions:
                ray.cancel(reference, force=True)

    def _fetch(self, reference: Any) -> bytes:  # noqa: ANN401 - Ray's own type
        try:
            reply: bytes = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            text = str(error).strip().splitlines()[0]
            reply = pack_error(ExecutorError(f"Ray gave this task up: {text}"))
        return reply

    def _room(self) -> int:
        """How many tasks may be under way: the cluster may grow and shrink meanwhile."""
        cores = int(self._ray.cluster_resources().get("CPU", 1)) // self._cores
        return AHEAD * max(1, cores)

    @override
    def close(self) -> None:
        if self._ours:
            self._ours = False
            self._ray.shutdown()


def _import_ray() -> Any:  # noqa: ANN401 - an optional library
    ask_for_token()
    try:
        import ray
    except ImportError as error:
        raise ExecutorError('Ray is not installed. Install it: pip install "atlas-studio[ray]".') from error
    return ray


def _connect(ray: Any, address: str | None) -> None:  # noqa: ANN401
    """Join the cluster at the address or at RAY_ADDRESS; without either, start Ray on this machine alone."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    wanted = address or os.environ.get("RAY_ADDRESS", "")
    if not wanted or wanted == "local":
        ensure_token()
        with on_loopback(ray):
            ray.init(address="local", include_dashboard=False, _node_ip_address=LOOPBACK, **quiet)
        return
    place = wanted if wanted == "auto" else private_address(wanted)
    if os.environ.get("RAY_AUTH_MODE") != "disabled" and find_token() is None:
        raise ExecutorError(
            f"the cluster at {wanted} asks for a token, and this machine has none. Copy the file "
            "~/.ray/auth_token of its head node to the same place here, readable by you alone (chmod 600)."
        )
    try:
        ray.init(address=place, **quiet)
    except (ConnectionError, RuntimeError, ValueError) as error:
        text = str(error).strip().splitlines()[0]
        raise ExecutorError(f"no Ray cluster can be joined at {wanted}: {text}") from error
