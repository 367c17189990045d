"""Members of a package's archive, by exact name, in memory. Knows nothing of pictures.

    read_member(archive, "package/emoji.json")
    read_members(wheel, r"elpv_dataset/data/images/cell\\d{4}\\.png")       # {"elpv_dataset/…": b"…", …}

Wheels are zips, npm's packages are gzipped tars, Debian's have a tar inside an `ar`. Nothing is unpacked to
disk, no link is followed, and every size is checked before a member is read.
"""

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from atlas_engine.data.zips import open_zip
from atlas_engine.errors import SupportError

__all__ = ["read_member", "read_members"]

MOST_MEMBER_BYTES = 64 << 20
MOST_TOTAL_BYTES = 1 << 30

_AR_MAGIC, _AR_HEADER_BYTES = b"!<arch>\n", 60
_BROKEN = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)


def read_member(path: Path, name: str) -> bytes:
    """The bytes of one member."""
    return read_members(path, re.escape(name))[name]


def read_members(path: Path, pattern: str) -> dict[str, bytes]:
    """The members whose whole name matches, in the order of their names; a SupportError if there are none."""
    wanted = re.compile(pattern)
    members = _of_zip(path, wanted) if path.suffix == ".whl" else _of_tar(path, wanted)
    found = dict(sorted(members))
    if not found:
        raise SupportError(f"{path.name}: holds no '{pattern}'. Get the package again.")
    return found


def _of_zip(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    with open_zip(path) as archive:
        for parts, member in archive.files:
            name = "/".join(parts)
            if wanted.fullmatch(name):
                yield name, archive.read(member)


def _of_tar(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    total = 0
    try:
        with path.open("rb") as file, _opened_tar(path, file) as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if not member.isreg() or not wanted.fullmatch(name):
                    continue
                total += member.size
                if member.size > MOST_MEMBER_BYTES or total > MOST_TOTAL_BYTES:
                    raise SupportError(f"{path.name}: unpacks to far more than it should at '{name}'.")
                content = archive.extractfile(member)
                yield name, b"" if content is None else content.read()
    except _BROKEN:
        raise SupportError(f"{path.name}: is damaged. Delete it, and it will be fetched again.") from None


@contextmanager
def _opened_tar(path: Path, file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    if path.suffix != ".deb":
        with tarfile.open(fileobj=file, mode="r|gz") as archive:
            yield archive
        return
    _seek_data(file)
    with tarfile.open(fileobj=file, mode="r|xz") as archive:
        yield archive


def _seek_data(file: IO[bytes]) -> None:
    """Go to the first byte of `data.tar.xz`. An entry of an `ar` is a header of 60 bytes and its content."""
    if file.read(len(_AR_MAGIC)) != _AR_MAGIC:
        raise EOFError("no ar archive")
    while len(header := file.read(_AR_HEADER_BYTES)) == _AR_HEADER_BYTES:
        name, size = header[:16].rstrip(), header[48:58].strip()
        if name.rstrip(b"/") == b"data.tar.xz":
            return
        if not size.isdigit():
            break
        file.seek(int(size) + int(size) % 2, 1)
    raise EOFError("no data.tar.xz")
