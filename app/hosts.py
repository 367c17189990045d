"""The names that this server answers under, and the pages that may send it requests.

A page on another site can make a visitor's browser ask a server on that visitor's own machine, under a host
name of its own (DNS rebinding). So a server that listens on this machine alone answers to the names of this
machine alone; one that listens to all answers to any name, or to those in ATLAS_HOSTS. A browser says which
page a request comes from: it has to be this server's own, or one that ATLAS_ORIGINS lists.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from app.clients import header_of

__all__ = ["AllowedHosts", "is_public"]

LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
HOST = re.compile(r"(?P<name>\[[0-9a-fA-F:.]{2,45}\]|[\w.-]{1,253})(:\d{1,5})?")


@dataclass(frozen=True)
class AllowedHosts:
    """Host names; none listed means any. `origins` are addresses of other pages, as https://example.org."""

    names: frozenset[str] = frozenset()
    origins: frozenset[str] = frozenset()

    @classmethod
    def from_environment(cls, host: str | None) -> AllowedHosts:
        """The names for a server that listens on `host`, from ATLAS_HOSTS and ATLAS_ORIGINS."""
        names = _listed("ATLAS_HOSTS")
        if not names and not is_public(host):
            names = LOCAL
        return cls(names | (LOCAL if names else frozenset()), _listed("ATLAS_ORIGINS"))

    def allows_host(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request names this server by a name that it has."""
        name = _name_of(header_of(scope, "host"))
        return name is not None and (not self.names or name in self.names)

    def allows_origin(self, scope: Mapping[str, Any]) -> bool:
        """Whether a request comes from this server's own page, from a listed one, or from a program."""
        origin = header_of(scope, "origin").lower()
        if not origin or origin in self.origins:
            return True
        asked = {_name_of(header_of(scope, name), with_port=True) for name in ("host", "x-forwarded-host")}
        return _origin_name(origin) in asked - {None}


def is_public(host: str | None) -> bool:
    """Whether others than this machine's own users reach a server that listens on `host`."""
    if os.environ.get("SPACE_ID"):
        return True
    name = (host or os.environ.get("GRADIO_SERVER_NAME") or "127.0.0.1").strip("[]")
    try:
        return not ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.lower() != "localhost"


def _name_of(host: str, *, with_port: bool = False) -> str | None:
    """The name in a Host header, in lower case; None where it is none."""
    found = HOST.fullmatch(host)
    if found is None:
        return None
    return host.lower() if with_port else found["name"].strip("[]").lower()


def _origin_name(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _listed(variable: str) -> frozenset[str]:
    return frozenset(part.strip().lower() for part in os.environ.get(variable, "").split(",") if part.strip())
