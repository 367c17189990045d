"""`ray`: tasks on the machines of a Ray cluster.

`ray` joins the cluster that this process is connected to, or that RAY_ADDRESS names, or else starts Ray on
this machine. `ray://HOST:PORT` is a cluster's client port. A node that is lost costs the tasks that it was
working on: Ray carries them out again elsewhere.

Whoever reaches a Ray port can run any code, by design. So addresses outside of private networks are refused,
a token is asked for (RAY_AUTH_MODE=token) and no dashboard is started. Tasks and replies travel as bytes
(`task`), but Ray itself pickles: a cluster is one circle of trust.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from typing_extensions import override

from atlas_engine.errors import ExecutorError
from atlas_engine.executors.task import Executor, pack_error, perform

__all__ = ["RayExecutor", "ensure_token", "on_loopback", "private_address"]

SCHEME = "ray://"
RETRIES = 5  # of a task whose node or worker was lost
AHEAD = 2  # tasks handed out for each core, so that none waits for its next one
LOOPBACK = "127.0.0.1"


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
    if "ray" not in sys.modules:  # else it has read this already, and turns the token on by itself
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
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


# ---- trust


@contextlib.contextmanager
def on_loopback(ray: Any) -> Iterator[None]:  # noqa: ANN401
    """Ray starts on 127.0.0.1, where no other machine reaches it.

    On Linux it takes the machine's own address in the place of 127.0.0.1, and then listens on all of them.
    This switch, which it has for systems without clusters, is what stops that.
    """
    constants = ray._private.ray_constants
    before = constants.ENABLE_RAY_CLUSTER
    constants.ENABLE_RAY_CLUSTER = False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before


def private_address(address: str) -> str:
    """The address with its host as a number; an ExecutorError unless all that the host stands for is private.

    >>> private_address("ray://127.0.0.1:10001")
    'ray://127.0.0.1:10001'
    """
    scheme, rest = (SCHEME, address[len(SCHEME) :]) if address.startswith(SCHEME) else ("", address)
    host, _, port = rest.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal():
        raise ExecutorError(
            f"'{address}' is no address of a Ray cluster. Give host and port: ray://10.0.0.5:10001."
        )
    try:
        found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)]
    except OSError as error:
        raise ExecutorError(f"the host '{host}' of {address} cannot be found ({error.strerror}).") from error
    for number in found:
        if not _is_private(number):
            raise ExecutorError(
                f"{address} is refused: {number} is a public address, and whoever reaches a Ray port can run "
                "any code. Use the cluster's private address, a VPN, or an SSH tunnel to 127.0.0.1."
            )
    number = found[0]  # and not the name, which might stand for another one the next time
    return f"{scheme}[{number}]:{port}" if ":" in number else f"{scheme}{number}:{port}"


def _is_private(number: str) -> bool:
    """Whether a number is an address of this machine or of a private network.

    >>> [_is_private(number) for number in ("10.0.0.5", "::1", "8.8.8.8", "::ffff:8.8.8.8", "0.0.0.0")]
    [True, True, False, False, False]
    """
    address = ipaddress.ip_address(number.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    return (address.is_private or address.is_loopback) and not address.is_unspecified


def find_token() -> str | None:
    """Where Ray finds its token: in the environment, or in a file; None where there is none."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return "RAY_AUTH_TOKEN"
    path = _token_file()
    return str(path) if path.is_file() else None


def ensure_token() -> None:
    """Make a token file that its owner alone can read, unless there is a token; close one that is open."""
    if os.environ.get("RAY_AUTH_TOKEN"):
        return
    path = _token_file()
    try:
        if path.is_file():
            path.chmod(0o600)
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
    except OSError as error:
        raise ExecutorError(
            f"Ray's token cannot be kept in {path} ({error.strerror}). Set RAY_AUTH_TOKEN_PATH to "
            "a file that you can write."
        ) from error


def _token_file() -> Path:
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token").expanduser()
