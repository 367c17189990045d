"""Who asks: the address that a request comes from, as far as it can be trusted.

Behind a proxy every connection comes from the proxy, which writes the address of its own peer into
`X-Forwarded-For`. Anybody else may write into that header too, so it counts only where the connection comes
from a proxy that the host named (ATLAS_PROXIES, or a Hugging Face Space, which nobody reaches otherwise).

Gradio's MCP server calls the endpoints over the network itself. So that those calls count for the caller and
not for the server, a request to it is given a mark, signed with a secret of this process (`ClientMarks`).
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["MARK_HEADER", "ClientMarks", "TrustedProxies", "header_of"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

MARK_HEADER = "x-atlas-client"
UNKNOWN = "unknown"
VARIABLE = "ATLAS_PROXIES"


@dataclass(frozen=True)
class TrustedProxies:
    """The proxies whose word on a client's address is taken."""

    networks: tuple[Network, ...] = ()

    @classmethod
    def from_environment(cls) -> TrustedProxies:
        """The networks that ATLAS_PROXIES lists, by commas; on a Space, any."""
        listed = os.environ.get(VARIABLE, "")
        if not listed and os.environ.get("SPACE_ID"):
            listed = "0.0.0.0/0,::/0"
        parts = [part.strip() for part in listed.split(",") if part.strip()]
        return cls(tuple(ipaddress.ip_network(part, strict=False) for part in parts))

    def __contains__(self, address: str) -> bool:
        found = _parse(address)
        return found is not None and any(
            found in network for network in self.networks if network.version == found.version
        )

    def client_of(self, scope: Mapping[str, Any]) -> str:
        """The client's address: the connection's peer, or what a trusted proxy says of it.

        Of several forwarded addresses the last public one counts: those before it may be the client's own
        invention, and private ones after it are further proxies.
        """
        peer = str((scope.get("client") or (UNKNOWN,))[0])
        if peer not in self:
            return _as_client(peer)
        forwarded = header_of(scope, "x-forwarded-for").split(",")
        addresses = [found for part in forwarded if (found := _parse(part.strip())) is not None]
        public = [address for address in addresses if not address.is_private]
        last = (public or addresses)[-1:]
        return _as_client(str(last[0]) if last else peer)


@dataclass(frozen=True)
class ClientMarks:
    """Signs the address of a client, so that it can be told from one that a stranger wrote."""

    secret: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def mark(self, client: str) -> str:
        """The client and a signature."""
        return f"{client} {self._sign(client)}"

    def read(self, marked: str) -> str | None:
        """The client of a mark; None where this process did not sign it."""
        client, _, signature = marked.rpartition(" ")
        is_ours = hmac.compare_digest(signature.encode(), self._sign(client).encode())
        return client if is_ours else None

    def _sign(self, client: str) -> str:
        return hmac.new(self.secret, client.encode("utf-8", "replace"), "sha256").hexdigest()


def header_of(scope: Mapping[str, Any], name: str) -> str:
    """A header of a request; '' where it has none, its values joined by commas where it has several."""
    wanted = name.encode()
    values: Iterable[bytes] = (value for key, value in scope.get("headers", ()) if key == wanted)
    return ",".join(value.decode("latin-1") for value in values)


def set_header(scope: MutableMapping[str, Any], name: str, value: str | None) -> None:
    """Put a header into a request in place of any of that name; with None, take it out."""
    kept = [(key, old) for key, old in scope.get("headers", ()) if key != name.encode()]
    scope["headers"] = kept if value is None else [*kept, (name.encode(), value.encode("latin-1"))]


def _parse(address: str) -> Address | None:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return None
    mapped = getattr(found, "ipv4_mapped", None)
    return mapped or found


def _as_client(address: str) -> str:
    """An IPv4 address, or the /64 network that one IPv6 visitor usually has whole."""
    found = _parse(address)
    if isinstance(found, ipaddress.IPv6Address) and not found.is_loopback:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found) if found is not None else UNKNOWN
