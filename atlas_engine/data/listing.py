"""The image files in a folder or a zip, and the files that are ignored, each with the reason."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar
from zipfile import ZipInfo

from atlas_engine.data.formats import ADVICE, IMAGE_ENDINGS, OTHER_IMAGE_ENDINGS, printable_name
from atlas_engine.data.zips import Archive, Parts
from atlas_engine.errors import SupportError

__all__ = ["Ignored", "Listing", "drop_outer_folder", "list_folder", "list_zip", "printable_path"]

Ref = TypeVar("Ref")  # what a file is read from: a Path, or the member of a zip

_CLUTTER = frozenset({"__macosx", "thumbs.db", "desktop.ini", "@eadir"})


@dataclass(frozen=True)
class Ignored:
    """A file that was ignored, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Listing(Generic[Ref]):
    """Image files and folders by the parts of their paths, and what was ignored."""

    name: str
    files: tuple[tuple[Parts, Ref], ...]
    folders: tuple[Parts, ...]
    ignored: tuple[Ignored, ...]


def list_folder(path: str | os.PathLike[str], *, max_depth: int | None) -> Listing[Path]:
    """The image files of a folder and its sub-folders; folders at `max_depth` are ignored."""
    root = Path(path)
    name = printable_name(root.name if root.name not in ("", "..") else str(root.resolve().name or root))
    if not root.is_dir():
        problem = "is a file, not a folder" if root.exists() else "there is no such folder"
        raise SupportError(f"{name}: {problem}. Give a folder of images, or use read_zip for a zip.")
    files: list[tuple[Parts, Path]] = []
    folders: list[Parts] = []
    ignored: list[Ignored] = []
    waiting: list[Parts] = [()]
    while waiting:
        parent = waiting.pop()
        for entry in _entries(root.joinpath(*parent), name=name):
            parts = (*parent, entry.name)
            is_folder = entry.is_dir()
            reason = _reason_to_ignore(parts, is_folder=is_folder)
            reason = reason or _reason_to_ignore_link(entry, root, parts=parts, name=name)
            if is_folder and not reason and len(parts) == max_depth:
                reason = "is a folder inside a class folder"
            if reason:
                ignored.append(Ignored(printable_path(parts), reason))
            elif is_folder:
                folders.append(parts)
                waiting.append(parts)
            else:
                files.append((parts, entry))
    return Listing(name, tuple(files), tuple(folders), tuple(ignored))


def list_zip(archive: Archive) -> Listing[ZipInfo]:
    """The image files of a zip; SupportError if it holds another zip."""
    ignored = [Ignored(name, reason) for name, reason in archive.left_out]
    files: list[tuple[Parts, ZipInfo]] = []
    for parts, member in archive.files:
        reason = _reason_to_ignore(parts, is_folder=False)
        if reason is None:
            files.append((parts, member))
        elif parts[-1].lower().endswith(".zip") and not _is_clutter(parts):
            raise SupportError(
                f"{archive.name}: holds another zip, '{printable_path(parts)}'. "
                "Unpack that one first, then make one zip with a folder of images per class."
            )
        else:
            ignored.append(Ignored(printable_path(parts), reason))
    folders = tuple(parts for parts in archive.folders if not _is_clutter(parts))
    return Listing(archive.name, tuple(files), folders, tuple(ignored))


def drop_outer_folder(listing: Listing[Ref]) -> Listing[Ref]:
    """The listing without the one outer folder that most tools put around the content of a zip."""
    tops = {parts[0] for parts, _ in listing.files} | {parts[0] for parts in listing.folders if parts}
    if len(tops) != 1 or all(len(parts) < 3 for parts, _ in listing.files):
        return listing
    files = tuple((parts[1:], ref) for parts, ref in listing.files)
    folders = tuple(parts[1:] for parts in listing.folders if parts[1:])
    return replace(listing, files=files, folders=folders)


def printable_path(parts: Parts) -> str:
    """The parts of a path as one line that is safe to print."""
    return printable_name("/".join(parts))


def _entries(folder: Path, *, name: str) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError as error:
        inner = printable_name(folder.name)
        raise SupportError(f"{name}: folder '{inner}' cannot be read ({error.strerror}).") from None


def _reason_to_ignore(parts: Parts, *, is_folder: bool) -> str | None:
    """Why a file or folder is ignored, by its name alone; None if it is not."""
    if _is_clutter(parts):
        return "is hidden, or kept there by the system"
    ending = Path(parts[-1]).suffix.lower()
    if is_folder or ending in IMAGE_ENDINGS:
        return None
    advice = f". {ADVICE}" if ending in OTHER_IMAGE_ENDINGS else ""
    return f"is not a JPEG, PNG or WEBP image{advice}"


def _reason_to_ignore_link(entry: Path, root: Path, *, parts: Parts, name: str) -> str | None:
    """Why a link is ignored; None if it is not. SupportError if it leads out of the folder."""
    if not entry.is_symlink():
        return None
    try:
        target = entry.resolve()
    except (OSError, RuntimeError):  # a link to itself
        return "is a broken link"
    if not target.is_relative_to(root.resolve()):
        raise SupportError(
            f"{name}: '{printable_path(parts)}' is a link that leads outside the folder. "
            "Put the image itself there."
        )
    if target.is_dir():
        return "is a link to a folder"
    return None if target.is_file() else "is a broken link"


def _is_clutter(parts: Parts) -> bool:
    return any(part.startswith(".") or part.lower() in _CLUTTER for part in parts)
