"""Rows, settings and tables planted in the cache folder are refused, and run nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
import sqlite3
from pathlib import Path

import diskcache
import pytest

from atlas_engine.cache import Cache, clear_folder
from atlas_engine.errors import CacheError

RAW, BINARY, TEXT, PICKLE = 1, 2, 3, 4


class Bomb:
    """Unpickling it makes a marker file: the harmless stand-in for a stranger's code."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (str(self.marker),)


@pytest.fixture
def folder(tmp_path):
    with Cache(tmp_path / "cache") as cache:
        cache.put_bytes("key", b"value")
    return tmp_path / "cache"


@pytest.fixture
def bomb(tmp_path):
    marker = tmp_path / "exploded"
    yield pickle.dumps(Bomb(marker))
    assert not marker.exists(), "the planted pickle was run"


def run_sql(folder, statement, *values):
    with contextlib.closing(sqlite3.connect(folder / "cache.db")) as connection, connection:
        connection.execute(statement, values)


def plant(folder, *, key="key", raw=1, mode=RAW, filename=None, value=None):
    run_sql(folder, "DELETE FROM Cache")
    columns = "key, raw, store_time, access_time, size, mode, filename, value"
    row = (key, raw, 1.0, 1.0, 0, mode, filename, value)
    run_sql(folder, f"INSERT INTO Cache ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", *row)


def test_the_bomb_is_real(folder, tmp_path):
    plant(folder, mode=PICKLE, value=pickle.dumps(Bomb(tmp_path / "proof")))
    with diskcache.Cache(str(folder)) as careless:
        careless.get("key")
    assert (tmp_path / "proof").is_dir()


@pytest.mark.parametrize("mode", [0, 2, 3, 4, 5, -1, "1x", "x", b"\x01", 1.5, None])
def test_a_pickle_under_any_mode_is_refused_and_never_run(folder, bomb, mode):
    plant(folder, mode=mode, value=bomb)
    sentence = r"did not write: a value of mode .* Run: atlas cache clear"
    with Cache(folder) as cache, pytest.raises(CacheError, match=sentence):
        cache.get_bytes("key")


@pytest.mark.parametrize("value", ["text", 7, 2.5, None])
def test_a_value_that_is_not_bytes_is_refused(folder, value):
    plant(folder, value=value)
    with Cache(folder) as cache, pytest.raises(CacheError, match="a value of mode 1"):
        cache.get_bytes("key")


def test_a_sound_value_beside_a_file_name_is_refused(folder):
    run_sql(folder, "UPDATE Cache SET filename = 'x.val'")
    with Cache(folder) as cache, pytest.raises(CacheError, match=r"file name 'x\.val'"):
        cache.get_bytes("key")


def test_a_text_key_marked_as_a_pickle_is_refused(folder):
    plant(folder, key="text", raw=0, value=b"value")
    with Cache(folder) as cache, pytest.raises(CacheError, match="a key that is not plain text"):
        list(cache._store)


@pytest.mark.parametrize("raw", [0, 1])
def test_a_pickled_key_is_never_run(folder, bomb, raw):
    plant(folder, key=bomb, raw=raw, value=bomb)
    with Cache(folder) as cache:
        assert cache.get_bytes("key") is None
        with pytest.raises(CacheError, match="a key that is not plain text"):
            list(cache._store)
        cache.put_bytes("key", b"value")
        assert cache.get_bytes("key") == b"value"


@pytest.mark.parametrize("mode", [RAW, BINARY, TEXT, PICKLE])
@pytest.mark.parametrize("absolute", [True, False])
def test_a_row_that_names_a_file_is_refused_and_the_file_stays(folder, bomb, tmp_path, mode, absolute):
    victim = tmp_path / "diary.txt"
    victim.write_bytes(bomb)
    plant(folder, mode=mode, filename=str(victim) if absolute else "../diary.txt")
    with Cache(folder) as cache:
        with pytest.raises(CacheError, match="file name"):
            cache.get_bytes("key")
        cache.put_bytes("key", b"over it")  # diskcache would now delete the old row's file
        assert cache.get_bytes("key") == b"over it"
    plant(folder, mode=mode, filename=str(victim))
    clear_folder(folder)  # … and here too
    assert victim.read_bytes() == bomb


def test_eviction_leaves_a_named_file_alone(folder, tmp_path):
    victim = tmp_path / "diary.txt"
    victim.write_text("dear diary")
    plant(folder, key="old", mode=BINARY, filename=str(victim))
    with Cache(folder, limit_bytes=2**20) as cache:
        for index in range(40):
            cache.put_bytes(str(index), os.urandom(60_000))
        assert cache.get_bytes("old") is None
    assert victim.read_text() == "dear diary"


def test_bytes_without_our_checksum_are_dropped(folder, bomb):
    plant(folder, value=bomb)
    with Cache(folder) as cache:
        assert cache.get_bytes("key") is None
        assert cache.get_tensor("key") is None
        assert len(cache) == 0


def test_stored_bytes_that_are_no_tensor_are_refused_and_never_run(folder, bomb):
    with Cache(folder) as cache:
        for value in (bomb, b"", b"\xff" * 100, b"[" * 100_000, b"\xff\xff\xff\xff\xff\xff\xff\x7f{}"):
            cache.put_bytes("key", value)
            with pytest.raises(CacheError, match="entry 'key' is not a tensor"):
                cache.get_tensor("key")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_directory", "/"),
        ("get", "no longer a method"),
        ("_disk", None),
        ("disk_directory", "/"),
        ("disk_anything", 1),
        ("sqlite_temp_store_directory", "/"),
        ("sqlite_journal_mode", "wal; DROP TABLE Cache"),
        ("eviction_policy", "none"),
        ("cull_limit", "many"),
        ("size", "huge"),
        ("count", None),
        ("disk_pickle_protocol", pickle.dumps(1)),
        (b"\x80", 1),
    ],
)
def test_an_odd_setting_is_refused_before_it_is_acted_on(folder, name, value):
    run_sql(folder, "INSERT OR REPLACE INTO Settings VALUES (?, ?)", name, value)
    with pytest.raises(CacheError, match="setting "):
        Cache(folder)
    assert clear_folder(folder) > 0
    with Cache(folder) as cache:
        cache.put_bytes("key", b"value")
        assert cache.get_bytes("key") == b"value"


def test_a_count_spoilt_while_open_is_refused(folder):
    with Cache(folder) as cache:
        run_sql(folder, "UPDATE Settings SET value = 'huge' WHERE key = 'size'")
        with pytest.raises(CacheError, match="count of bytes"):
            _ = cache.nbytes


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE diary (day)",
        "CREATE VIEW diary AS SELECT * FROM Cache",
        "CREATE TRIGGER diary AFTER INSERT ON Cache BEGIN DELETE FROM Cache; END",
    ],
)
def test_a_table_view_or_trigger_that_is_not_ours_is_refused(folder, statement):
    run_sql(folder, statement)
    with pytest.raises(CacheError, match="diary in cache"):
        Cache(folder)


def test_a_table_with_other_columns_is_refused(folder):
    run_sql(folder, "ALTER TABLE Cache ADD COLUMN diary")
    with pytest.raises(CacheError, match="a table Cache with other columns"):
        Cache(folder)


def test_a_database_of_someone_else_behind_a_link_is_not_written(tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "theirs.db")) as connection, connection:
        connection.execute("CREATE TABLE accounts (name)")
    before = (tmp_path / "theirs.db").read_bytes()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "cache.db").symlink_to(tmp_path / "theirs.db")
    with pytest.raises(CacheError, match="table accounts"):
        Cache(tmp_path / "cache")
    assert (tmp_path / "theirs.db").read_bytes() == before
    clear_folder(tmp_path / "cache")
    assert (tmp_path / "theirs.db").read_bytes() == before
