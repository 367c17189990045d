"""A cache on disk that trusts nobody. Knows nothing of models: keys are text, values are bytes.

It is diskcache without pickle. As shipped, diskcache unpickles rows that anyone with access to the folder
can plant (CVE-2025-69872), so reading a cache can run a stranger's code. Here a row is a `str` key and a
`bytes` value kept inside SQLite; every other mode, file name or type is refused on read (`StrictDisk`), and
the tables are looked over before diskcache acts on what they say (`_refuse_foreign`).

    with Cache(cache_folder()) as cache:
        features = cache.get_tensor(key)          # None when it is not there
        cache.put_tensor(key, features)

A cache is disposable: a damaged file is moved aside and begun anew, and a folder that cannot be written is
done without. Both are logged once. Only rows that we would never write raise `CacheError`.
Several processes and threads may share one folder. The oldest entries make room for new ones.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import diskcache

from atlas_engine.errors import CacheError, ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["Cache", "cache_key", "clear_folder", "folder_nbytes"]

log = logging.getLogger(__name__)

MIB = 2**20
LARGEST_SHARE = 16  # a value over 1/16 of the limit is not stored: ten evictions then never empty the cache
SEAL_NBYTES = 16  # each value is stored behind a digest of its key and itself: SQLite has no checksums
DATABASE = "cache.db"
DAMAGED = "cache.db.damaged"
FILES = (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", DAMAGED)

# All that diskcache would otherwise take from its own Settings table. mmap stays off: reading a mapped file
# that another process cuts short kills the reader, where an ordinary read merely fails.
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
SCHEMA = {
    ("table", "Settings"),
    ("table", "Cache"),
    ("index", "sqlite_autoindex_Settings_1"),
    ("index", "Cache_key_raw"),
    ("index", "Cache_expire_time"),
    ("index", "Cache_store_time"),
    ("trigger", "Settings_count_insert"),
    ("trigger", "Settings_count_delete"),
    ("trigger", "Settings_size_insert"),
    ("trigger", "Settings_size_update"),
    ("trigger", "Settings_size_delete"),
}
COLUMNS = {
    "Cache": "rowid key raw store_time expire_time access_time access_count tag size mode filename value",
    "Settings": "key value",
}

Answer = TypeVar("Answer")


class Cache:
    """Bytes, tensors and JSON by text key, in one folder that never grows past `limit_bytes`."""

    def __init__(self, folder: Path | str, *, limit_bytes: int = 512 * MIB) -> None:
        if limit_bytes < MIB:
            raise ConfigError(f"limit_bytes is {limit_bytes} but must be at least {MIB} (1 MiB).")
        # diskcache expands names in the folder by itself: do the same, so that both mean one folder.
        self.folder = Path(os.path.expandvars(folder)).expanduser().absolute()
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._rebuilt = False
        self._store: Any = None
        self._start()

    def get_bytes(self, key: str) -> bytes | None:
        """The bytes put under `key`, or None."""
        return self._attempt(lambda store: self._get(store, key))

    def put_bytes(self, key: str, value: bytes) -> None:
        """Keep bytes under `key`, and let the oldest entries go once the folder is full."""
        if type(value) is not bytes:
            raise TypeError(f"a cache value must be bytes, not {type(value).__name__}.")
        if len(value) > self.limit_bytes // LARGEST_SHARE:
            log.debug("%d bytes are too many for a cache of %d; not stored.", len(value), self.limit_bytes)
            return
        self._attempt(lambda store: self._put(store, key, _seal(key, value) + value))

    def get_tensor(self, key: str) -> torch.Tensor | None:
        """The tensor put under `key`, on the CPU, or None."""
        value = self.get_bytes(key)
        if value is None:
            return None
        import safetensors.torch

        try:
            tensor: torch.Tensor = safetensors.torch.load(value)["tensor"]
        except (safetensors.SafetensorError, KeyError, ValueError) as error:
            self._refuse(f"entry '{key}' is not a tensor ({error})")
        return tensor

    def put_tensor(self, key: str, tensor: torch.Tensor) -> None:
        """Keep a tensor under `key`."""
        import safetensors.torch

        self.put_bytes(key, safetensors.torch.save({"tensor": tensor.detach().cpu().contiguous()}))

    def get_json(self, key: str) -> Any:  # noqa: ANN401 - JSON is what it is
        """The JSON value put under `key`, or None."""
        value = self.get_bytes(key)
        if value is None:
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError) as error:
            self._refuse(f"entry '{key}' is not JSON ({error})")

    def put_json(self, key: str, value: object) -> None:
        """Keep a JSON value under `key`."""
        self.put_bytes(key, json.dumps(value).encode())

    @property
    def usable(self) -> bool:
        """Whether entries are kept; False once the folder proved unwritable, and after `close`."""
        return self._store is not None

    @property
    def nbytes(self) -> int:
        """Bytes that the entries and their index take on disk."""
        return self._attempt(self._volume) or 0

    def __len__(self) -> int:
        return self._attempt(len) or 0

    def verify(self) -> int:
        """Look at every entry, and give their number; CacheError if one of them is not of our making."""
        return self._attempt(lambda store: _verified(store, self._refuse)) or 0

    def clear(self) -> int:
        """Remove every entry, and give their number."""
        return self._attempt(lambda store: store.clear(retry=True)) or 0

    def close(self) -> None:
        """Close this thread's connection; from here on nothing is found and nothing kept."""
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

    def _start(self) -> None:
        """Open the folder; begin anew where the file is damaged; do without where nothing can be written."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._store = _opened(self.folder, self.limit_bytes, self._refuse)
        except (sqlite3.OperationalError, OSError) as error:
            self._go_without(error)
        except sqlite3.DatabaseError as error:
            self._begin_anew(None, error)

    def _attempt(self, action: Callable[[Any], Answer]) -> Answer | None:
        """The answer of the store; None where there is no store, it is busy, or it breaks."""
        store = self._store
        if store is None:
            return None
        try:
            return action(store)
        except diskcache.Timeout:
            log.debug("the cache in %s is busy; went on without it.", self.folder)
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                self._go_without(error)
        except sqlite3.DatabaseError as error:
            self._begin_anew(store, error)
        return None

    def _get(self, store: Any, key: str) -> bytes | None:  # noqa: ANN401 - diskcache has no types
        sealed: bytes | None = store.get(key)
        if sealed is None:
            return None
        value = sealed[SEAL_NBYTES:]
        if _seal(key, value) == sealed[:SEAL_NBYTES]:
            return value
        log.warning("entry '%s' of the cache in %s was damaged; forgotten.", key, self.folder)
        store.delete(key)
        return None

    def _put(self, store: Any, key: str, sealed: bytes) -> None:  # noqa: ANN401
        store.set(key, sealed)
        if self._volume(store) > self.limit_bytes:
            store.cull()

    def _volume(self, store: Any) -> int:  # noqa: ANN401
        try:
            return int(store.volume())
        except (TypeError, ValueError) as error:
            self._refuse(f"its own count of bytes is not a number ({error})")

    def _go_without(self, reason: Exception) -> None:
        self.close()
        log.warning("the cache in %s cannot be used (%s); working without it.", self.folder, reason)

    def _begin_anew(self, store: Any, reason: Exception) -> None:  # noqa: ANN401
        with self._lock:
            if self._store is not store:
                return  # another thread met the same damage first
            if self._rebuilt:
                self._go_without(reason)
                return
            self._rebuilt = True
            self.close()
            try:
                # Between our failure and now another process may have begun anew: never move a sound file.
                if _is_damaged(self.folder / DATABASE):
                    _move_aside(self.folder)
                    log.warning("the cache in %s was damaged (%s); begun anew.", self.folder, reason)
                self._store = _opened(self.folder, self.limit_bytes, self._refuse)
            except (sqlite3.DatabaseError, OSError) as error:
                self._go_without(error)

    def _refuse(self, what: str) -> NoReturn:
        raise CacheError(
            f"the cache in {self.folder} holds something that this program did not write: {what}. "
            "Nothing of it was used. Run: atlas cache clear (or delete the folder)."
        )


class StrictDisk(diskcache.Disk):  # type: ignore[misc]
    """How a row is written and read: a `str` key, a `bytes` value, inline. Anything else is refused."""

    refuse: Callable[[str], NoReturn]  # set by `_opened`

    def put(self, key: object) -> tuple[str, bool]:
        """A key on its way in."""
        if type(key) is not str:
            raise TypeError(f"a cache key must be a str, not {type(key).__name__}.")
        return key, True

    def get(self, key: object, raw: object) -> str:
        """A key on its way out."""
        if type(key) is not str or raw != 1:
            self.refuse("a key that is not plain text")
        return key

    def store(self, value: object, read: bool, key: object = None) -> tuple[int, int, None, memoryview]:  # noqa: ARG002
        """A value on its way in."""
        if read or type(value) is not bytes:
            raise TypeError(f"a cache value must be bytes, not {type(value).__name__}.")
        return 0, diskcache.core.MODE_RAW, None, sqlite3.Binary(value)

    def fetch(self, mode: object, filename: object, value: object, read: object) -> bytes:
        """A value on its way out."""
        if read or mode != diskcache.core.MODE_RAW or filename is not None or type(value) is not bytes:
            self.refuse(f"a value of mode {mode!r} and type {type(value).__name__}, file name {filename!r}")
        return value

    def filename(self, key: object = None, value: object = None) -> NoReturn:  # noqa: ARG002
        """Never asked for: values do not live in files."""
        raise TypeError("this cache keeps no files.")

    def remove(self, file_path: object) -> None:
        """Leave the file alone: we wrote none, and a planted row may name any file of this user."""
        log.warning("a row of the cache named the file %r; the row went, the file was left alone.", file_path)


def cache_key(kind: str, *parts: str | bytes | float) -> str:
    """A short key for a kind of value and all that it depends on; different parts give different keys.

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
    """Bytes that a cache folder takes on disk, without opening what is in it."""
    sizes = []
    for name in FILES:
        with contextlib.suppress(OSError):
            sizes.append((folder / name).stat().st_size)
    return sum(sizes)


def clear_folder(folder: Path) -> int:
    """Empty a cache folder, whatever it holds, and give the number of bytes that came free."""
    before = folder_nbytes(folder)
    if before:
        try:
            with Cache(folder) as cache:
                cache.clear()
        except CacheError:  # opened by nobody: take the files away instead of the rows
            for name in FILES:
                (folder / name).unlink(missing_ok=True)
        (folder / DAMAGED).unlink(missing_ok=True)
    return max(0, before - folder_nbytes(folder))


def _seal(key: str, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=SEAL_NBYTES, key=hashlib.sha256(key.encode()).digest()).digest()


def _opened(folder: Path, limit_bytes: int, refuse: Callable[[str], NoReturn]) -> Any:  # noqa: ANN401
    _refuse_foreign(folder / DATABASE, refuse)
    store = diskcache.Cache(str(folder), disk=StrictDisk, timeout=10, size_limit=limit_bytes, **SETTINGS)
    store.disk.refuse = refuse
    return store


def _refuse_foreign(database: Path, refuse: Callable[[str], NoReturn]) -> None:
    """Look over the tables before diskcache does: it makes attributes and PRAGMAs of what Settings says."""
    if not database.exists():
        return
    with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection:
        schema = set(connection.execute("SELECT type, name FROM sqlite_master"))
        foreign = sorted(f"{kind} {name}" for kind, name in schema - SCHEMA)
        if foreign:
            refuse(f"{foreign[0]} in {database.name}")
        for table, columns in COLUMNS.items():
            found = [name for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", [table])]
            if ("table", table) in schema and found != columns.split():
                refuse(f"a table {table} with other columns")
        if ("table", "Settings") not in schema:
            return
        expected = SETTINGS | COUNTERS
        for name, value in connection.execute("SELECT key, value FROM Settings"):
            if name not in expected or type(value) is not type(expected[name]):
                refuse(f"setting {name!r} of type {type(value).__name__}")
            if isinstance(value, str) and value != expected[name]:
                refuse(f"setting {name!r} with value {value!r}")


def _verified(store: Any, refuse: Callable[[str], NoReturn]) -> int:  # noqa: ANN401
    with contextlib.closing(sqlite3.connect(Path(store.directory) / DATABASE, timeout=10)) as connection:
        sound = (
            "typeof(key) = 'text' AND raw = 1 AND mode = 1 AND filename IS NULL AND typeof(value) = 'blob'"
        )
        ((total, ours),) = connection.execute(
            f"SELECT count(*), count(CASE WHEN {sound} THEN 1 END) FROM Cache"
        )
    if ours != total:
        refuse(f"{total - ours} of {total} rows")
    return int(total)


def _is_damaged(database: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(database, timeout=10)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",))
    except sqlite3.OperationalError:
        return False  # locked, or not to be read at all: that is no damage
    except sqlite3.DatabaseError:
        return True


def _move_aside(folder: Path) -> None:
    (folder / DATABASE).replace(folder / DAMAGED)
    for suffix in ("-wal", "-shm"):
        (folder / f"{DATABASE}{suffix}").unlink(missing_ok=True)
