"""What lies in a folder or a zip, and what of it is left out. Knows nothing of classes or pixels."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar
from zipfile import ZipInfo

from atlas_engine.data.formats import ADVICE, IMAGE_ENDINGS, OTHER_IMAGE_ENDINGS, printable
from atlas_engine.data.zips import Archive, Parts
from atlas_engine.errors import SupportError

__all__ = ["Ignored", "Listing", "list_folder", "list_zip", "shown", "unwrapped"]

Ref = TypeVar("Ref")


@dataclass(frozen=True)
class Ignored:
    """A file that was left out, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Listing(Generic[Ref]):
    """Files by their path's parts, each with what will be read: a Path, or a zip's member."""

    name: str
    files: tuple[tuple[Parts, Ref], ...]
    folders: tuple[Parts, ...]
    ignored: tuple[Ignored, ...]


def list_folder(path: str | os.PathLike[str], *, deepest: int | None) -> Listing[Path]:
    """All that lies in a folder, down to `deepest` levels below it."""
    root = Path(path)
    name = printable(root.name if root.name not in ("", "..") else str(root.resolve().name or root))
    if not root.is_dir():
        what = "is a file, not a folder" if root.exists() else "there is no such folder"
        raise SupportError(f"{name}: {what}. Give a folder of pictures, or use read_zip for a zip.")
    files: list[tuple[Parts, Path]] = []
    folders: list[Parts] = []
    ignored: list[Ignored] = []
    waiting: list[Parts] = [()]
    while waiting:
        parent = waiting.pop()
        for entry in _entries(root.joinpath(*parent), name=name):
            parts = (*parent, entry.name)
            is_folder = entry.is_dir()
            reason = _why_not(parts, is_folder=is_folder) or _link_problem(
                entry, root, parts=parts, name=name
            )
            if is_folder and not reason and len(parts) == deepest:
                reason = "is a folder inside a class folder"
            if reason:
                ignored.append(Ignored(shown(parts), reason))
            elif is_folder:
                folders.append(parts)
                waiting.append(parts)
            else:
                files.append((parts, entry))
    return Listing(name, tuple(files), tuple(folders), tuple(ignored))


def list_zip(archive: Archive) -> Listing[ZipInfo]:
    """All that lies in a zip; a SupportError where that includes another zip."""
    ignored = [Ignored(name, reason) for name, reason in archive.left_out]
    files: list[tuple[Parts, ZipInfo]] = []
    for parts, member in archive.files:
        reason = _why_not(parts, is_folder=False)
        if reason is None:
            files.append((parts, member))
        elif parts[-1].lower().endswith(".zip") and not _is_clutter(parts):
            raise SupportError(
                f"{archive.name}: holds another zip, '{shown(parts)}'. "
                "Unpack that one first, then make one zip with a folder of pictures per class."
            )
        else:
            ignored.append(Ignored(shown(parts), reason))
    folders = tuple(parts for parts in archive.folders if not _is_clutter(parts))
    return Listing(archive.name, tuple(files), folders, tuple(ignored))


def unwrapped(listing: Listing[Ref]) -> Listing[Ref]:
    """The same without the one outer folder that most tools put around a zip's content."""
    tops = {parts[0] for parts, _ in listing.files} | {parts[0] for parts in listing.folders if parts}
    if len(tops) != 1 or all(len(parts) < 3 for parts, _ in listing.files):
        return listing
    files = tuple((parts[1:], ref) for parts, ref in listing.files)
    folders = tuple(parts[1:] for parts in listing.folders if parts[1:])
    return replace(listing, files=files, folders=folders)


def shown(parts: Parts) -> str:
    """A path's parts as one line that is safe to print."""
    return printable("/".join(parts))


def _entries(folder: Path, *, name: str) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        shown = printable(folder.name)
        raise SupportError(f"{name}: folder '{shown}' cannot be read ({error.strerror}).") from None


def _link_problem(entry: Path, root: Path, *, parts: Parts, name: str) -> str | None:
    """Why a link is left out; a SupportError where it leads out of the folder."""
    if not entry.is_symlink():
        return None
    try:
        target = entry.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return "is a broken link"
    if not target.is_relative_to(root.resolve()):
        raise SupportError(
            f"{name}: '{shown(parts)}' is a link that leads outside the folder. Put the picture itself there."
        )
    if target.is_dir():
        return "is a link to a folder"
    return None if target.is_file() else "is a broken link"


def _why_not(parts: Parts, *, is_folder: bool) -> str | None:
    """Why a file or folder is left out, by its name alone."""
    if _is_clutter(parts):
        return "is hidden, or kept there by the system"
    ending = Path(parts[-1]).suffix.lower()
    if is_folder or ending in IMAGE_ENDINGS:
        return None
    advice = f". {ADVICE}" if ending in OTHER_IMAGE_ENDINGS else ""
    return f"is not a JPEG, PNG or WEBP picture{advice}"


def _is_clutter(parts: Parts) -> bool:
    return any(part.startswith(".") or part.lower() in _CLUTTER for part in parts)


_CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})
