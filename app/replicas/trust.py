"""Who may ask the replicas: whoever has the token, on a private network.

    use_token()                          # before Ray is imported: RAY_AUTH_MODE=token, and a token file
    bearer = read_token()                # for a client
    check_private("192.168.0.4")         # an AtlasError for an address that the internet reaches

Ray's own token file serves for both doors: Ray's, by its own check, and the replicas' address, by ours.
"""

from __future__ import annotations

import hmac
import os
import stat

import atlas_engine as atlas
from app import text
from atlas_engine import cluster

__all__ = ["check_private", "is_token", "read_token", "require_token_mode", "use_token"]


def read_token() -> str:
    """The token; an AtlasError where there is none, or others can read it."""
    path = cluster.token_file()
    in_file = path.is_file() and not os.environ.get(cluster.TOKEN_VARIABLE)
    if in_file and path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise atlas.AtlasError(text.replicas.open_token(str(path)))
    token = cluster.find_token()
    if token is None:
        raise atlas.AtlasError(text.replicas.no_token_file(str(path)))
    return token


def use_token() -> str:
    """The token, made where there is none; Ray asks for it from now on, in this process and its children."""
    token = cluster.ensure_token()
    os.environ[cluster.MODE_VARIABLE] = "token"
    if not os.environ.get(cluster.TOKEN_VARIABLE):
        os.environ[cluster.PATH_VARIABLE] = str(cluster.token_file())
    return token


def require_token_mode() -> None:
    """Raise unless Ray asks for the token in this process; it looks once, when it is imported."""
    if os.environ.get(cluster.MODE_VARIABLE) != "token":
        raise atlas.AtlasError(text.replicas.NO_TOKEN_MODE)


def is_token(header: str, token: str) -> bool:
    """Whether an Authorization header carries the token; in the same time for all that do not."""
    return hmac.compare_digest(header.encode("utf-8", "replace"), f"Bearer {token}".encode())


def check_private(host: str) -> None:
    """Raise unless a host is an address of this machine alone, or of a private network."""
    if not cluster.is_private("127.0.0.1" if host == "localhost" else host):
        raise atlas.AtlasError(text.replicas.public_address(host))
