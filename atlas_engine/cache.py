"""A cache on disk that never unpickles: keys are text, values are bytes.

It is diskcache without pickle. As shipped, diskcache unpickles rows that anyone with access to the folder
can plant (CVE-2025-69872), so that reading a cache can run a stranger's code. Here a row is a `str` key and a
`bytes` value inside SQLite. Every other mode, file name or type is refused on read (`StrictDisk`), and the
tables are checked before diskcache acts on what they say (`_find_foreign`).

    with Cache(cache_folder()) as cache:
        features = cache.get_tensor(key)          # None if it is not there
        cache.put_tensor(key, features)

A cache is disposable, and never the reason that something fails. If its file is damaged or not ours, it is
moved aside and a new one begun; an entry that we would never write is forgotten; if the folder cannot be
written, nothing is cached. All of this is logged, and none of it raises.
Several processes and threads may share one folder. The oldest entries make room for new ones.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import diskcache

from atlas_engine.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["Cache", "cache_key", "clear_folder", "folder_nbytes"]

log = logging.getLogger(__name__)

MIB = 2**20
MIN_ENTRIES = 16  # a value over 1/16 of the limit is not stored: an eviction of ten never empties the cache
CHECKSUM_NBYTES = 16  # stored in front of each value, of the key and the value: SQLite has no checksums
DATABASE = "cache.db"
DAMAGED = "cache.db.damaged"
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", DAMAGED)

# Every setting that diskcache would otherwise take from its own Settings table. mmap stays off: if another
# process truncates a mapped file, the reader is killed, whereas an ordinary read merely fails.
SETTINGS: dict[str, int | str] = {
    "statistics": 0,
    "tag_index": 0,
    "eviction_policy": "least-recently-stored",
    "cull_limit": 0,
    "sqlite_auto_vacuum": 1,
    "sqlite_cache_size": 2**13,
    "sqlite_journal_mode": "wal",
    "sqlite_mmap_size": 0,
    "sqlite_synchronous": 1,
    "disk_min_file_size": 0,
    "disk_pickle_protocol": 0,
}
COUNTERS = dict.fromkeys(("size_limit", "count", "size", "hits", "misses"), 0)
_SCHEMA = "SELECT type, name, sql FROM sqlite_master"

Returned = TypeVar("Returned")


class _ForeignError(Exception):
    """The cache holds something that this program did not write. Never leaves this module."""


# What sqlite3 and diskcache raise where a file is damaged: damage in a count or a name is well-formed SQL, so
# that diskcache calculates with text, and looks for columns that are not there.
_DAMAGE = (
    sqlite3.Error,
    _ForeignError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    TypeError,
    ValueError,
)


class Cache:
    """Bytes and tensors by text key, in one folder that never grows past `limit_bytes`."""

    def __init__(self, folder: Path | str, *, limit_bytes: int = 512 * MIB) -> None:
        if limit_bytes < MIB:
            raise ConfigError(f"limit_bytes is {limit_bytes} but must be at least {MIB} (1 MiB).")
        # diskcache expands variables in the path itself: do the same, so that both mean one folder.
        self.folder = Path(os.path.expandvars(folder)).expanduser().absolute()
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._rebuilt = False
        self._store: Any = None
        self._open()

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes stored under `key`, or None."""
        _check_key(key)
        return self._attempt(lambda store: self._get(store, key))

    def put_bytes(self, key: str, value: bytes) -> None:
        """Store bytes under `key`, and evict the oldest entries if the folder is full."""
        _check_key(key)
        if type(value) is not bytes:
            raise TypeError(f"a cache value must be bytes, not {type(value).__name__}.")
        if len(value) > self.limit_bytes // MIN_ENTRIES:
            log.debug("%d bytes are too many for a cache of %d; not stored.", len(value), self.limit_bytes)
            return
        self._attempt(lambda store: self._put(store, key, _checksum(key, value) + value))

    def get_tensor(self, key: str) -> torch.Tensor | None:
        """The tensor stored under `key`, on the CPU, or None."""
        value = self.get_bytes(key)
        if value is None:
            return None
        import safetensors.torch

        try:
            tensor: torch.Tensor = safetensors.torch.load(value)["tensor"]
        except (safetensors.SafetensorError, KeyError, ValueError) as error:
            log.warning("entry '%s' of the cache in %s is not a tensor (%s).", key, self.folder, error)
            return None
        return tensor

    def put_tensor(self, key: str, tensor: torch.Tensor) -> None:
        """Store a tensor under `key`."""
        import safetensors.torch

        self.put_bytes(key, safetensors.torch.save({"tensor": tensor.detach().cpu().contiguous()}))

    @property
    def usable(self) -> bool:
        """Whether entries are stored: False if the folder cannot be written, and after `close`."""
        return self._store is not None

    @property
    def nbytes(self) -> int:
        """Bytes that the entries and their index take on disk."""
        return self._attempt(self._volume) or 0

    def __len__(self) -> int:
        return self._attempt(len) or 0

    def clear(self) -> int:
        """Remove all entries. Returns their number."""
        return self._attempt(lambda store: store.clear(retry=True)) or 0

    def close(self) -> None:
        """Close this thread's connection; from now on nothing is found and nothing stored."""
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not self.usable:
            return f"Cache(off, {self.folder})"
        size = f"{self.nbytes / MIB:.1f} of {self.limit_bytes // MIB} MiB"
        return f"Cache({len(self)} entries, {size}, {self.folder})"

    def _open(self) -> None:
        """Open the folder; rebuild a damaged file; turn off if nothing can be written."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = _open_store(self.folder, self.limit_bytes)
        except (sqlite3.OperationalError, OSError) as error:
            self._turn_off(error)
        except _DAMAGE as error:
            self._rebuild(None, error)

    def _attempt(self, action: Callable[[Any], Returned]) -> Returned | None:
        """The result of an action on the store; None if there is no store, it is busy, or it breaks."""
        store = self._store
        if store is None:
            return None
        try:
            return action(store)
        except diskcache.Timeout:
            log.debug("the cache in %s is busy; went on without it.", self.folder)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                self._turn_off(error)
        except _DAMAGE as error:
            self._rebuild(store, error)
        return None

    def _get(self, store: Any, key: str) -> bytes | None:  # noqa: ANN401 - diskcache has no types
        why = "it is not what was stored"
        try:
            stored: bytes | None = store.get(key)
            if stored is None:
                return None
            checksum, value = stored[:CHECKSUM_NBYTES], stored[CHECKSUM_NBYTES:]
            if _checksum(key, value) == checksum:
                return value
        except _ForeignError as error:
            why = str(error)
        log.warning("entry '%s' of the cache in %s was damaged (%s); forgotten.", key, self.folder, why)
        store.delete(key)
        return None

    def _put(self, store: Any, key: str, stored: bytes) -> None:  # noqa: ANN401
        store.set(key, stored)
        if self._volume(store) > self.limit_bytes:
            store.cull()

    def _volume(self, store: Any) -> int:  # noqa: ANN401
        return int(store.volume())

    def _turn_off(self, reason: Exception) -> None:
        self.close()
        log.warning("the cache in %s cannot be used (%s); working without it.", self.folder, reason)

    def _rebuild(self, store: Any, reason: Exception) -> None:  # noqa: ANN401
        """Move a damaged file aside and begin a new one, once; turn off if that fails too."""
        with self._lock:
            if self._store is not store:
                return  # another thread has met the same damage first
            if self._rebuilt:
                self._turn_off(reason)
                return
            self._rebuilt = True
            self.close()
            try:
                # Since our failure another process may have begun a new file: never move a sound one.
                if _is_damaged(self.folder / DATABASE):
                    _move_aside(self.folder)
                    log.warning("the cache in %s was damaged (%s); begun anew.", self.folder, reason)
                self._store = _open_store(self.folder, self.limit_bytes)
            except (*_DAMAGE, OSError) as error:
                self._turn_off(error)


class StrictDisk(diskcache.Disk):  # type: ignore[misc]
    """How a row is written and read: a `str` key and a `bytes` value, inline. Anything else is refused."""

    def put(self, key: object) -> tuple[str, bool]:
        """The key as it is written."""
        return _check_key(key), True

    def get(self, key: object, raw: object) -> str:
        """The key as it was read."""
        if type(key) is not str or raw != 1:
            raise _ForeignError("a key that is not plain text")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, memoryview]:  # noqa: ARG002
        """The value as it is written."""
        if read or type(value) is not bytes:
            raise TypeError(f"a cache value must be bytes, not {type(value).__name__}.")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: object, filename: object, value: object, read: object) -> bytes:
        """The value as it was read."""
        if read or mode != diskcache.core.MODE_RAW or filename is not None or type(value) is not bytes:
            kind = type(value).__name__
            raise _ForeignError(
                f"a value of mode {_shorten(mode)} and type {kind}, file name {_shorten(filename)}"
            )
        return value

    def filename(self, key: object = None, value: object = None) -> NoReturn:  # noqa: ARG002
        """Refused: values are not stored in files."""
        raise TypeError("this cache keeps no files.")

    def remove(self, file_path: object) -> None:
        """Leave the file alone: we wrote none, and a planted row may name any file of this user."""
        name = _shorten(file_path)
        log.warning("a row of the cache named the file %s; the row went, the file was left alone.", name)


def cache_key(kind: str, *parts: str | bytes | float) -> str:
    """A short key for a kind of value and everything it depends on; different parts give different keys.

    >>> cache_key("text", "a photo", "of")[:9], cache_key("text", "a photoof")[:9]
    ('text:d248', 'text:7910')
    """
    digest = hashlib.sha256()
    for part in parts:
        raw = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        digest.update(f"{type(part).__name__} {len(raw)} ".encode())
        digest.update(raw)
    return f"{kind}:{digest.hexdigest()}"


def folder_nbytes(folder: Path) -> int:
    """Bytes that a cache folder takes on disk, without opening its files."""
    sizes = []
    for name in FILES:
        with contextlib.suppress(OSError):
            sizes.append((folder / name).stat().st_size)
    return sum(sizes)


def clear_folder(folder: Path) -> int:
    """Empty a cache folder, whatever it holds. Returns the number of bytes freed."""
    before = folder_nbytes(folder)
    if before:
        if _is_damaged(folder / DATABASE):
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
        else:
            with Cache(folder) as cache:
                cache.clear()
        (folder / DAMAGED).unlink(missing_ok=True)
    return max(0, before - folder_nbytes(folder))


def _shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _check_key(key: object) -> str:
    if type(key) is not str:
        raise TypeError(f"a cache key must be a str, not {type(key).__name__}.")
    return key


def _checksum(key: str, value: bytes) -> bytes:
    return hashlib.blake2b(
        value, digest_size=CHECKSUM_NBYTES, key=hashlib.sha256(key.encode()).digest()
    ).digest()


def _open_store(folder: Path, limit_bytes: int) -> Any:  # noqa: ANN401
    foreign = _find_foreign(folder / DATABASE)
    if foreign is not None:
        raise _ForeignError(f"it holds something that this program did not write: {foreign}")
    return diskcache.Cache(str(folder), disk=StrictDisk, timeout=10, size_limit=limit_bytes, **SETTINGS)


def _find_foreign(database: Path) -> str | None:
    """What the tables hold that we would not write, or None; to be asked before diskcache reads them.

    diskcache makes attributes and PRAGMAs of the Settings table.
    """
    if not database.exists():
        return None
    with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")  # a damaged name is not ours
        return next(_foreign_things(connection), None)


def _foreign_things(connection: sqlite3.Connection) -> Iterator[str]:
    schema = set(connection.execute(_SCHEMA))
    yield from sorted(f"{kind} {_shorten(name)} in {DATABASE}" for kind, name, _ in schema - _own_schema())
    if not any(name == "Settings" for _, name, _ in schema):
        return
    expected = SETTINGS | COUNTERS
    for name, value in connection.execute("SELECT key, value FROM Settings"):
        if name not in expected or type(value) is not type(expected[name]):
            yield f"setting {_shorten(name)} of type {type(value).__name__}"
        elif isinstance(value, str) and value != expected[name]:
            yield f"setting {name!r} with value {_shorten(value)}"
        elif name == "size" and value != 0:  # counts bytes outside of SQLite; a wrong count would evict all
            yield f"a count of {value} bytes in files"


@functools.cache
def _own_schema() -> frozenset[tuple[str, str, str]]:
    """Type, name and SQL of all that diskcache makes in a new database: a trigger may be damaged within."""
    with tempfile.TemporaryDirectory() as folder:
        diskcache.Cache(folder, disk=StrictDisk, **SETTINGS).close()
        with contextlib.closing(sqlite3.connect(Path(folder, DATABASE))) as connection:
            return frozenset(connection.execute(_SCHEMA))


def _is_damaged(database: Path) -> bool:
    try:
        if _find_foreign(database) is not None:
            return True
        with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection:
            return bool(connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
    except sqlite3.OperationalError:
        return False  # locked or unreadable, which is no damage
    except _DAMAGE:
        return True


def _move_aside(folder: Path) -> None:
    (folder / DATABASE).replace(folder / DAMAGED)
    for suffix in ("-wal", "-shm"):
        (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
