"""The members of a stranger's zip, read in memory and never extracted to disk.

    with open_zip("photos.zip") as archive:
        for parts, member in archive.files: ...     # ("cats", "1.jpg"), safe to compare, never used as a path
        data = archive.read(member)

The sizes that a zip states are not trusted: limits and ratios are checked on the bytes as they inflate.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from atlas_engine.config import Settings, setting
from atlas_engine.data.formats import printable_name
from atlas_engine.data.image import StopQuestion, raise_if_stopped
from atlas_engine.errors import ImageError, SupportError

__all__ = ["Archive", "ZipLimits", "open_zip"]

Parts = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ZipLimits(Settings):
    """What a zip from a stranger may cost. Checked when built."""

    max_zip_bytes: int = setting(512 << 20, help="largest zip, in bytes", low=1)
    max_files: int = setting(10_000, help="most entries in the zip", low=1)
    max_total_bytes: int = setting(512 << 20, help="most bytes, all images unpacked", low=1)
    max_file_bytes: int = setting(20 << 20, help="most bytes, one image unpacked", low=1)
    max_ratio: float = setting(100.0, help="bytes unpacked over bytes packed, at most", low=1)


DEFAULT_ZIP_LIMITS = ZipLimits()

_CENTRAL_ENTRY = b"PK\x01\x02"
_CHUNK_BYTES = 1 << 16
_RATIO_FROM_BYTES = 1 << 20  # below this a high ratio is harmless, and honest small files have one
_ENCRYPTED = 0x1  # of the general purpose flags
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the only ones that inflate in bounded steps
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError)


@contextlib.contextmanager
def open_zip(
    source: str | os.PathLike[str] | bytes,
    *,
    name: str | None = None,
    limits: ZipLimits = DEFAULT_ZIP_LIMITS,
    stop: StopQuestion | None = None,
) -> Iterator[Archive]:
    """An Archive of a zip's path or bytes, closed at the end; SupportError if it is no zip that we accept."""
    name = printable_name(name or ("zip" if isinstance(source, bytes) else Path(source).name))
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(_stream(source, name=name))
        zip_bytes = stream.seek(0, io.SEEK_END)
        if zip_bytes > limits.max_zip_bytes:
            most = limits.max_zip_bytes / (1 << 20)
            raise SupportError(f"{name}: has more than the {most:.3g} MiB taken. Send fewer images.")
        _check_count(stream, name=name, limits=limits)
        try:
            archive = stack.enter_context(zipfile.ZipFile(stream))
        except _DAMAGED:
            raise SupportError(_describe_damage(stream, name=name)) from None
        yield Archive(name, archive, zip_bytes=zip_bytes, limits=limits, stop=stop)


class Archive:
    """An open zip: its safe members, those left out with a reason, and a reader that counts bytes."""

    def __init__(
        self,
        name: str,
        archive: zipfile.ZipFile,
        *,
        zip_bytes: int,
        limits: ZipLimits,
        stop: StopQuestion | None = None,
    ) -> None:
        self.name = name
        self._archive, self._zip_bytes, self._limits, self._stop = archive, zip_bytes, limits, stop
        self._inflated = 0
        self.files: list[tuple[Parts, zipfile.ZipInfo]] = []
        self.folders: list[Parts] = []
        self.left_out: list[tuple[str, str]] = []
        for member in archive.infolist():
            self._add(member)

    def read(self, member: zipfile.ZipInfo) -> bytes:
        """The bytes of one member; an error if they, or all bytes read so far, exceed a limit."""
        name = printable_name(member.filename)
        if member.flag_bits & _ENCRYPTED:
            raise SupportError(f"{self.name}: is locked with a password. Make a zip without one.")
        if member.compress_type not in _METHODS:
            raise SupportError(
                f"{self.name}: '{name}' is packed by a rare method ({member.compress_type}). "
                "Make a plain zip (method: deflate)."
            )
        try:
            return b"".join(self._chunks(member, name))
        except _DAMAGED:
            raise SupportError(
                f"{self.name}: is damaged at '{name}'. Make the zip again, or upload it again."
            ) from None

    def _chunks(self, member: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
        limits, inflated = self._limits, 0
        with self._archive.open(member) as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                raise_if_stopped(self._stop, self.name)
                inflated += len(chunk)
                self._inflated += len(chunk)
                if inflated > limits.max_file_bytes:
                    most = limits.max_file_bytes / (1 << 20)
                    raise ImageError(f"{name}: has more than the {most:.3g} MiB taken. Save it smaller.")
                if self._inflated > limits.max_total_bytes:
                    most = limits.max_total_bytes / (1 << 20)
                    raise SupportError(
                        f"{self.name}: unpacks to more than {most:.3g} MiB. Send fewer images."
                    )
                self._check_ratio(inflated, member.compress_size)
                self._check_ratio(self._inflated, self._zip_bytes)
                yield chunk

    def _check_ratio(self, inflated: int, packed: int) -> None:
        if inflated > _RATIO_FROM_BYTES and inflated > self._limits.max_ratio * max(packed, 1):
            raise SupportError(
                f"{self.name}: unpacks to more than {self._limits.max_ratio:g} times its size, "
                "as a zip bomb does and images do not. Make a zip of images only."
            )

    def _add(self, member: zipfile.ZipInfo) -> None:
        """List a member under `files`, `folders` or `left_out`."""
        # Windows tools write backslashes, whatever the standard says.
        path = member.filename.replace("\\", "/")
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        if path.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", path):
            self.left_out.append((printable_name(member.filename), "its path leads outside the zip"))
        elif stat.S_ISLNK(member.external_attr >> 16):
            self.left_out.append((printable_name(member.filename), "is a link, not a file"))
        elif path.endswith("/"):
            self.folders.append(parts)
        elif parts:
            self.files.append((parts, member))


def _stream(source: str | os.PathLike[str] | bytes, *, name: str) -> IO[bytes]:
    if isinstance(source, bytes):
        return io.BytesIO(source)
    path = Path(source)
    try:
        if path.exists() and not path.is_file():
            raise SupportError(f"{name}: is not a zip file. Give a zip, or use read_folder for a folder.")
        return path.open("rb")
    except FileNotFoundError:
        raise SupportError(f"{name}: there is no such zip. Check the path.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SupportError(f"{name}: cannot be read ({why}). Check the path and its permissions.") from None


def _check_count(stream: IO[bytes], *, name: str, limits: ZipLimits) -> None:
    """Count the entries by their signature, before `zipfile` makes an object of each."""
    stream.seek(0)
    count, tail = 0, b""
    while chunk := stream.read(1 << 20):
        count += (tail + chunk).count(_CENTRAL_ENTRY)
        tail = chunk[-(len(_CENTRAL_ENTRY) - 1) :]
        if count > limits.max_files:
            raise SupportError(f"{name}: has more than {limits.max_files} entries. Send fewer images.")


def _describe_damage(stream: IO[bytes], *, name: str) -> str:
    stream.seek(0)
    if stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06"):
        return f"{name}: is a damaged or cut zip. Make it again, or upload it again."
    return f"{name}: is not a zip. Make a zip with one folder of images per class."
