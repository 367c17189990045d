"""Messages without tensors, and messages one after the other in a stream. It imports no torch.

The replicas' door hands messages on without reading them, and a process without torch is half as large.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import atlas_engine as atlas
from app import text

__all__ = ["KEY", "Facts", "encode_facts", "frame", "iter_frames", "read_refusal", "refusal"]

Facts = dict[str, Any]

KEY = "message"  # of the JSON among a safetensors file's metadata
LENGTH_NBYTES = 8
MAX_NBYTES = 1 << 30


def encode_facts(facts: Facts) -> bytes:
    """A message without tensors: a safetensors file that is a header only."""
    header = json.dumps({"__metadata__": {KEY: json.dumps(facts)}}).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header


def refusal(sentence: str) -> bytes:
    """The message that ends a stream without a result."""
    return encode_facts({"kind": "refusal", "sentence": sentence})


def read_refusal(body: bytes) -> str | None:
    """The sentence of a refusal; None for every other message."""
    if b'\\"kind\\": \\"refusal\\"' not in body[:200]:
        return None
    nbytes = int.from_bytes(body[:8], "little")
    return str(json.loads(json.loads(body[8 : 8 + nbytes])["__metadata__"][KEY])["sentence"])


def frame(body: bytes) -> bytes:
    """A message in a stream: its length, then its bytes."""
    return len(body).to_bytes(LENGTH_NBYTES, "little") + body


def iter_frames(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """The messages of a stream, of which `read(n)` gives the next n bytes, fewer at its end only."""
    while length := read(LENGTH_NBYTES):
        nbytes = int.from_bytes(length, "little")
        if len(length) < LENGTH_NBYTES or nbytes > MAX_NBYTES:
            raise atlas.AtlasError(text.replicas.LOST)
        body = read(nbytes)
        if len(body) < nbytes:
            raise atlas.AtlasError(text.replicas.LOST)
        yield body
