"""Who may reach a Ray cluster: whoever has its token, on a private network.

    token = ensure_token()                        # made, and readable by its owner alone, where there is none
    private_address("ray://10.0.0.5:10001")       # an ExecutorError for an address of the internet
    with on_loopback(ray): ray.init(…)            # a Ray of this machine alone

Whoever reaches a Ray port with the token can run any code, by design. Ray reads RAY_AUTH_MODE once, when it
is imported: `ask_for_token` has to come before. Nothing here imports Ray.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from atlas_engine.errors import ExecutorError

__all__ = [
    "LOOPBACK",
    "RAY_SCHEME",
    "ask_for_token",
    "ensure_token",
    "find_token",
    "is_private",
    "on_loopback",
    "private_address",
    "token_file",
]

RAY_SCHEME = "ray://"
LOOPBACK = "127.0.0.1"
PATH_VARIABLE, MODE_VARIABLE, TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


# ---- the token


def ask_for_token() -> None:
    """Let Ray ask for the token, unless the user has said otherwise; call it before Ray is imported."""
    if "ray" not in sys.modules:  # else it has read this already
        os.environ.setdefault(MODE_VARIABLE, "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def token_file() -> Path:
    """Where the token is: as Ray has it, RAY_AUTH_TOKEN_PATH or a file in the home folder."""
    return Path(os.environ.get(PATH_VARIABLE) or Path.home() / ".ray" / "auth_token").expanduser()


def find_token() -> str | None:
    """The token, of the environment or of its file; None where there is none."""
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return given
    path = token_file()
    return path.read_text(encoding="utf-8").strip() if path.is_file() else None


def ensure_token() -> str:
    """The token. Where there is none it is made; a file of it that others can read is closed to them."""
    path = token_file()
    try:
        if path.is_file():
            path.chmod(0o600)
        elif not os.environ.get(TOKEN_VARIABLE):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(secrets.token_hex(32))
        token = find_token()
    except OSError as error:
        raise ExecutorError(
            f"Ray's token cannot be kept in {path} ({error.strerror}). Set RAY_AUTH_TOKEN_PATH to "
            "a file that you can write."
        ) from error
    assert token is not None
    return token


# ---- addresses


@contextlib.contextmanager
def on_loopback(ray: Any) -> Iterator[None]:  # noqa: ANN401 - an optional library
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
    has_scheme = address.startswith(RAY_SCHEME)
    scheme, rest = (RAY_SCHEME, address[len(RAY_SCHEME) :]) if has_scheme else ("", address)
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
        if not is_private(number):
            raise ExecutorError(
                f"{address} is refused: {number} is a public address, and whoever reaches a Ray port can run "
                "any code. Use the cluster's private address, a VPN, or an SSH tunnel to 127.0.0.1."
            )
    number = found[0]  # and not the name, which might stand for another one the next time
    return f"{scheme}[{number}]:{port}" if ":" in number else f"{scheme}{number}:{port}"


def is_private(number: str) -> bool:
    """Whether a number is an address of this machine or of a private network.

    >>> [is_private(number) for number in ("10.0.0.5", "::1", "8.8.8.8", "::ffff:8.8.8.8", "0.0.0.0", "host")]
    [True, True, False, False, False, False]
    """
    try:
        address = ipaddress.ip_address(number.partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    address = mapped or address
    return (address.is_private or address.is_loopback) and not address.is_unspecified
