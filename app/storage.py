"""The visitors' files on the disk: one private folder, its quota, and the sweeper that empties it.

    storage = Storage.open()                    # before Gradio is set up: it makes this Gradio's folder too
    with storage.admit("203.0.113.7", nbytes):  # an AtlasError where there is no room
        ...
    storage.sweep()                             # delete what is older than LIMITS.keep_seconds
    storage.close()                             # delete everything

Every server has a folder of its own inside of a common one, and holds a lock while it lives. A server that
starts deletes the folders whose lock nobody holds: after a kill, the next start leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import stat
import tempfile
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import atlas_engine as atlas
from app import text
from app.limits import LIMITS, Limits

__all__ = ["NoRoomError", "Storage", "UploadSpace", "delete_abandoned", "require_room"]

PREFIX = "visitors-"
UPLOADS, INCOMING, SCRATCH = "uploads", "incoming", "scratch"
LOCK = ".lock"
HAS_LOCKS = importlib.util.find_spec("fcntl") is not None  # not on Windows, where age alone decides
MEASURE_SECONDS = 2.0  # how long a measurement of the folder counts


class NoRoomError(atlas.AtlasError):
    """There is no room for these files: for this visitor, or for anybody."""


class Storage:
    """The folder of one server's visitors, its quota and its sweeper. Threads may share it."""

    def __init__(self, folder: Path, lock: IO[bytes] | None, *, limits: Limits = LIMITS) -> None:
        self.folder, self._lock_file, self._limits = folder, lock, limits
        self.uploads, self.incoming, self.scratch = (folder / name for name in (UPLOADS, INCOMING, SCRATCH))
        for part in (self.uploads, self.incoming, self.scratch):
            _make_private(part)
        self._lock = threading.Lock()
        self._reserved = 0  # bytes that are on their way
        self._measured = (0.0, 0)  # when, and how many bytes there were
        self._sent: dict[str, deque[tuple[float, int]]] = defaultdict(
            deque
        )  # by client: when, how many bytes

    @classmethod
    def open(cls, root: Path | None = None, *, limits: Limits = LIMITS) -> Storage:
        """A folder for this process, below GRADIO_TEMP_DIR or the system's folder for temporary files.

        Gradio and `tempfile` write into it from now on. Folders of servers that are gone are deleted.
        """
        root = root or Path(
            os.environ.get("ATLAS_VISITORS") or os.environ.get("GRADIO_TEMP_DIR") or _default_root()
        )
        _make_private(root)
        delete_abandoned(root, seconds=limits.keep_seconds)
        folder = root / f"{PREFIX}{os.getpid()}-{secrets.token_hex(4)}"
        _make_private(folder)
        storage = cls(folder, _take_lock(folder), limits=limits)
        os.environ.setdefault("ATLAS_VISITORS", str(root))  # a second server of this process finds the same
        os.environ["GRADIO_TEMP_DIR"] = str(storage.uploads)
        tempfile.tempdir = str(storage.scratch)
        return storage

    # ---- room

    @contextlib.contextmanager
    def admit(self, client: str, nbytes: int = 0) -> Iterator[UploadSpace]:
        """Room for files of a client while they arrive; a NoRoomError where there is none.

        `nbytes` is what the client announces. What comes beyond that is counted by `UploadSpace.add`.
        """
        space = UploadSpace(self, client)
        try:
            space.add(nbytes)
            yield space
        finally:
            with self._lock:
                self._reserved -= space.nbytes
                self._measured = (0.0, 0)

    def used_nbytes(self) -> int:
        """Bytes of all visitors' files now, measured at most every two seconds."""
        when, nbytes = self._measured
        if time.monotonic() - when > MEASURE_SECONDS or not when:
            nbytes = sum(size for _, size, _ in _files_in(self.folder))
            self._measured = (time.monotonic(), nbytes)
        return nbytes

    def free_nbytes(self) -> int:
        """Bytes that the disk has left."""
        return shutil.disk_usage(self.folder).free

    @property
    def has_room(self) -> bool:
        """Whether anybody may upload a file now."""
        return self._has_room_for(1)

    def _has_room_for(self, nbytes: int) -> bool:
        on_disk = self.used_nbytes() + self._reserved + nbytes
        left = self.free_nbytes() - self._reserved - nbytes
        return on_disk <= self._limits.storage_megabytes << 20 and left >= self._limits.free_megabytes << 20

    def _reserve(self, client: str, nbytes: int) -> None:
        now = time.monotonic()
        with self._lock:
            sent = self._sent[client]
            while sent and now - sent[0][0] > self._limits.keep_seconds:
                sent.popleft()
            if sum(size for _, size in sent) + nbytes > self._limits.visitor_megabytes << 20:
                raise NoRoomError(text.server.visitor_full(self._limits.visitor_megabytes))
            if nbytes and not self._has_room_for(nbytes):
                raise NoRoomError(text.server.DISK_FULL)
            self._reserved += nbytes
            if nbytes:
                sent.append((now, nbytes))

    # ---- the sweeper

    def sweep(self, *, seconds: float | None = None) -> int:
        """Delete files that are older than `seconds` (LIMITS.keep_seconds); returns how many.

        A file that cannot be deleted, or is gone already, does not keep the others.
        """
        age = self._limits.keep_seconds if seconds is None else seconds
        deleted = 0
        for path, _, changed in _files_in(self.folder):
            if path.name != LOCK and time.time() - changed >= age:
                with contextlib.suppress(OSError):
                    path.unlink()
                    deleted += 1
        _delete_empty_folders(self.folder, keep={self.uploads, self.incoming, self.scratch}, seconds=age)
        with self._lock:
            self._measured = (0.0, 0)
            quiet = [client for client, sent in self._sent.items() if not sent or _is_old(sent[-1][0], age)]
            for client in quiet:
                del self._sent[client]
        return deleted

    def close(self) -> None:
        """Delete all files of this server's visitors, and let the folder go."""
        shutil.rmtree(self.folder, ignore_errors=True)
        if tempfile.tempdir == str(self.scratch):
            tempfile.tempdir = None
        if os.environ.get("GRADIO_TEMP_DIR") == str(self.uploads):
            os.environ["GRADIO_TEMP_DIR"] = os.environ.get("ATLAS_VISITORS", "")
        if self._lock_file is not None:
            self._lock_file.close()


class UploadSpace:
    """The room that one upload takes while it arrives."""

    def __init__(self, storage: Storage, client: str) -> None:
        self._storage, self._client = storage, client
        self._arrived = 0
        self.nbytes = 0  # taken so far

    def arrive(self, nbytes: int) -> None:
        """Count bytes that came; those beyond what was announced need room of their own."""
        self._arrived += nbytes
        if self._arrived > self.nbytes:
            self.add(self._arrived - self.nbytes)

    def add(self, nbytes: int) -> None:
        """Take more room; a NoRoomError where there is none."""
        self._storage._reserve(self._client, nbytes)
        self.nbytes += nbytes


def require_room(folder: Path, nbytes: int, *, limits: Limits = LIMITS) -> None:
    """Raise a NoRoomError where files of so many bytes, unpacked below `folder`, would be too much."""
    owner = next((one for one in (folder, *folder.parents) if one.name.startswith(PREFIX)), folder)
    used = sum(size for _, size, _ in _files_in(owner))
    left = shutil.disk_usage(folder).free - nbytes
    if used + nbytes > limits.storage_megabytes << 20 or left < limits.free_megabytes << 20:
        raise NoRoomError(text.server.DISK_FULL)


def delete_abandoned(root: Path, *, seconds: float) -> list[str]:
    """Delete the folders below `root` of servers that are gone; returns their names."""
    gone = []
    for folder in root.glob(f"{PREFIX}*"):
        if folder.is_symlink() or not folder.is_dir() or not _is_abandoned(folder, seconds=seconds):
            continue
        shutil.rmtree(folder, ignore_errors=True)
        gone.append(folder.name)
    return gone


def _is_abandoned(folder: Path, *, seconds: float) -> bool:
    """Whether nobody holds the folder's lock; where there are no locks, whether it is old."""
    if not HAS_LOCKS:
        return time.time() - folder.stat().st_mtime > seconds
    import fcntl

    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return time.time() - folder.stat().st_mtime > 60  # one that starts in this moment has none yet
    except OSError:
        return False
    return True


def _take_lock(folder: Path) -> IO[bytes] | None:
    lock = (folder / LOCK).open("wb")
    if HAS_LOCKS:
        import fcntl

        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def _default_root() -> str:
    owner = os.getuid() if hasattr(os, "getuid") else "user"
    return str(Path(tempfile.gettempdir()) / f"atlas-{owner}")


def _make_private(folder: Path) -> None:
    """Make a folder that only this user can open; an AtlasError where somebody else put one there."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    facts = folder.lstat()
    if not stat.S_ISDIR(facts.st_mode) or (hasattr(os, "getuid") and facts.st_uid != os.getuid()):
        raise atlas.AtlasError(
            f"{folder} is a link or belongs to another user, so visitors' files are not kept there. Set "
            "ATLAS_VISITORS to a folder of your own."
        )
    folder.chmod(0o700)


def _files_in(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Every file below a folder with its bytes and when it was last changed; others may add and delete."""
    pending = [folder]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                else:
                    facts = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), facts.st_size, max(facts.st_mtime, facts.st_ctime)


def _delete_empty_folders(root: Path, *, keep: set[Path], seconds: float) -> None:
    for parent, _, _ in os.walk(root, topdown=False):
        folder = Path(parent)
        if folder == root or folder in keep:
            continue
        with contextlib.suppress(OSError):  # not empty, or gone
            if time.time() - folder.stat().st_mtime >= seconds:
                folder.rmdir()


def _is_old(moment: float, seconds: float) -> bool:
    return time.monotonic() - moment >= seconds
