"""Who may ask the replicas: whoever has the token, on a private network.

    use_token()                          # before Ray is imported: RAY_AUTH_MODE=token, and a token file
    bearer = read_token()                # for a client
    check_private("192.168.0.4")         # an AtlasError for an address that the internet reaches

Ray's own token file serves for both doors: Ray's, by its own check, and the replicas' address, by ours.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import stat
from pathlib import Path

import atlas_engine as atlas
from app import text

__all__ = ["check_private", "is_token", "read_token", "require_token_mode", "token_file", "use_token"]

PATH_VARIABLE, MODE_VARIABLE, TOKEN_VARIABLE = "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"


def token_file() -> Path:
    """Where the token is: as Ray has it, RAY_AUTH_TOKEN_PATH or a file in the home folder."""
    return Path(os.environ.get(PATH_VARIABLE) or Path.home() / ".ray" / "auth_token")


def read_token() -> str:
    """The token; an AtlasError where there is none, or others can read it."""
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if given:
        return given
    path = token_file()
    if not path.is_file():
        raise atlas.AtlasError(text.replicas.no_token_file(str(path)))
    if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise atlas.AtlasError(text.replicas.open_token(str(path)))
    return path.read_text(encoding="utf-8").strip()


def use_token() -> str:
    """The token, made where there is none; Ray asks for it from now on, in this process and its children."""
    path = token_file()
    if not path.is_file() and not os.environ.get(TOKEN_VARIABLE):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(part, "w", encoding="utf-8") as file:
            file.write(secrets.token_hex(32))
    token = read_token()
    os.environ[MODE_VARIABLE] = "token"
    if not os.environ.get(TOKEN_VARIABLE):
        os.environ[PATH_VARIABLE] = str(path)
    return token


def require_token_mode() -> None:
    """Raise unless Ray asks for the token in this process; it looks once, when it is imported."""
    if os.environ.get(MODE_VARIABLE) != "token":
        raise atlas.AtlasError(text.replicas.NO_TOKEN_MODE)


def is_token(header: str, token: str) -> bool:
    """Whether an Authorization header carries the token; in the same time for all that do not."""
    return hmac.compare_digest(header.encode("utf-8", "replace"), f"Bearer {token}".encode())


def check_private(host: str) -> None:
    """Raise unless a host is an address of this machine alone, or of a private network."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise atlas.AtlasError(text.replicas.public_address(host)) from None
    if not (address.is_private or address.is_loopback) or address.is_unspecified:
        raise atlas.AtlasError(text.replicas.public_address(host))
