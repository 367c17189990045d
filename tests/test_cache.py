"""The cache returns what was stored, within its limit, to many processes, and survives a bad disk."""

from __future__ import annotations

import logging
import os
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import torch

from atlas_engine.cache import MIB, Cache, cache_key, clear_folder, folder_nbytes
from atlas_engine.errors import ConfigError


@pytest.fixture
def cache(tmp_path):
    with Cache(tmp_path / "cache") as opened:
        yield opened


def test_bytes_and_tensors_come_back_as_they_went_in(cache):
    cache.put_bytes("raw", b"\x00\xff")
    assert cache.get_bytes("raw") == b"\x00\xff"
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64):
        tensor = torch.arange(12).reshape(3, 4).to(dtype)
        cache.put_tensor("features", tensor.T)  # a view that is not contiguous
        found = cache.get_tensor("features")
        assert found.dtype is dtype
        assert torch.equal(found, tensor.T)


def test_what_is_not_there_is_none_and_a_second_put_replaces_the_first(cache):
    assert cache.get_bytes("nothing") is None
    assert cache.get_tensor("nothing") is None
    cache.put_bytes("key", b"old")
    cache.put_bytes("key", b"new")
    assert cache.get_bytes("key") == b"new"
    assert len(cache) == 1


def test_entries_outlive_the_object(tmp_path):
    with Cache(tmp_path) as first:
        first.put_bytes("key", b"kept")
    with Cache(tmp_path) as second:
        assert second.get_bytes("key") == b"kept"
        assert len(second) == 1
        assert second.clear() == 1
        assert second.get_bytes("key") is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_folder_is_private(tmp_path):
    with Cache(tmp_path / "deep" / "cache"):
        assert stat.S_IMODE((tmp_path / "deep" / "cache").stat().st_mode) == 0o700


def test_only_text_keys_and_bytes_are_taken(cache):
    with pytest.raises(TypeError, match="key must be a str, not tuple"):
        cache.get_bytes(("a", 1))
    with pytest.raises(TypeError, match="value must be bytes, not bytearray"):
        cache.put_bytes("key", bytearray(b"x"))


def test_the_folder_stays_within_its_limit_and_the_newest_entries_stay(tmp_path):
    with Cache(tmp_path, limit_bytes=MIB) as cache:
        for index in range(100):
            cache.put_bytes(f"key {index}", os.urandom(40_000))
        assert cache.nbytes <= MIB
        assert cache.get_bytes("key 99") is not None
        assert cache.get_bytes("key 0") is None
        assert len(cache) >= 5, "eviction takes ten at a time, and must not empty the cache"
    assert folder_nbytes(tmp_path) <= MIB


def test_a_value_too_large_for_the_cache_is_not_stored_and_drives_nothing_out(tmp_path):
    with Cache(tmp_path, limit_bytes=MIB) as cache:
        cache.put_bytes("small", b"stays")
        cache.put_bytes("large", bytes(MIB // 16 + 1))
        assert cache.get_bytes("large") is None
        assert cache.get_bytes("small") == b"stays"


def test_a_limit_that_holds_nothing_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="limit_bytes is 10 but must be at least"):
        Cache(tmp_path, limit_bytes=10)


WRITER = """
import sys
from atlas_engine.cache import Cache
me, folder = sys.argv[1:]
with Cache(folder, limit_bytes=2**20) as cache:
    for index in range(60):
        cache.put_bytes(f"shared {index % 7}", me.encode() * 3000)
        cache.put_bytes(f"{me} {index}", f"{me} {index}".encode() * 1000)
        mine, shared = cache.get_bytes(f"{me} {index}"), cache.get_bytes(f"shared {index % 7}")
        assert mine in (None, f"{me} {index}".encode() * 1000), "torn value"
        assert shared is None or (len(set(shared)) == 1 and len(shared) == 3000), "torn value"
    assert cache.usable
"""


def test_several_processes_share_one_folder(tmp_path):
    commands = [[sys.executable, "-W", "error", "-c", WRITER, name, str(tmp_path)] for name in "abcd"]
    running = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for command in commands]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
        assert errors == ""
    with Cache(tmp_path, limit_bytes=MIB) as cache:
        assert 0 < cache.nbytes <= MIB
        keys = list(cache._store)
        assert len(keys) == len(cache) > 0
        assert all(cache.get_bytes(key) is not None for key in keys), "each row is one of ours, and whole"


def test_several_threads_share_one_object(cache):
    failures = []

    def work(name):
        for index in range(20):
            cache.put_bytes(f"{name}{index}", f"{name}{index}".encode())
            if cache.get_bytes(f"{name}{index}") != f"{name}{index}".encode():
                failures.append((name, index))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(cache) == 80


def filled(folder):
    with Cache(folder) as cache:
        for index in range(20):
            cache.put_bytes(f"key {index}", bytes([index]) * 5000)
    return folder / "cache.db"


@pytest.mark.parametrize("keep", [0, 1, 50, 99, 100, 4096, 5000, 40_960])
def test_a_truncated_file_is_replaced(tmp_path, keep):
    database = filled(tmp_path)
    database.write_bytes(database.read_bytes()[:keep])
    check_it_still_serves(tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_a_file_with_random_damage_gives_no_wrong_answer_and_serves_on(tmp_path, seed):
    database = filled(tmp_path)
    raw = bytearray(database.read_bytes())
    draw = torch.Generator().manual_seed(seed)
    for place in torch.randint(len(raw), (40,), generator=draw).tolist():
        raw[place] ^= 0x55
    database.write_bytes(raw)
    check_it_still_serves(tmp_path)


def check_it_still_serves(folder):
    with Cache(folder) as cache:
        for index in range(20):
            assert cache.get_bytes(f"key {index}") in (None, bytes([index]) * 5000)
        cache.put_bytes("new", b"value")
        assert not cache.usable or cache.get_bytes("new") == b"value"
    with Cache(folder) as cache:
        cache.put_bytes("new", b"value")
        assert cache.get_bytes("new") == b"value"


def test_a_file_of_rubbish_is_moved_aside_with_one_warning(tmp_path, caplog):
    (tmp_path / "cache.db").write_bytes(b"this is not a database " * 1000)
    with Cache(tmp_path) as cache:
        cache.put_bytes("key", b"value")
        assert cache.get_bytes("key") == b"value"
    assert (tmp_path / "cache.db.damaged").read_bytes().startswith(b"this is not")
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "was damaged" in caplog.text
    clear_folder(tmp_path)
    assert not (tmp_path / "cache.db.damaged").exists()


def test_a_file_damaged_while_open_costs_entries_and_nothing_more(tmp_path):
    with Cache(tmp_path) as cache:
        for index in range(50):
            cache.put_bytes(f"key {index}", bytes(20_000))
        with Cache(tmp_path) as other:  # its closing does not matter: the first one still holds the file
            other.put_bytes("other", b"x")
        database = tmp_path / "cache.db"
        database.write_bytes(b"\x99" * database.stat().st_size)
        (tmp_path / "cache.db-wal").write_bytes(b"")
        for index in range(50):
            assert cache.get_bytes(f"key {index}") in (None, bytes(20_000))
        cache.put_bytes("after", b"value")
        assert cache.get_bytes("after") in (None, b"value")
    with Cache(tmp_path) as again:
        again.put_bytes("after", b"value")
        assert again.get_bytes("after") == b"value"


def test_without_a_folder_nothing_is_cached_and_one_warning_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with Cache(tmp_path / "file" / "cache") as cache:
        cache.put_bytes("key", b"value")
        cache.put_bytes("key", b"value")
        assert cache.get_bytes("key") is None
        assert (cache.usable, cache.nbytes, len(cache), cache.clear()) == (False, 0, 0, 0)
        assert repr(cache).startswith("Cache(off, ")
    assert len(caplog.records) == 1
    assert "working without it" in caplog.text


READER = """
import os, sys
from atlas_engine.cache import Cache
os.chdir("/")
if os.geteuid() == 0: os.setuid(65534)   # root may write anywhere: become nobody
with Cache(sys.argv[1]) as cache:
    cache.put_bytes("key", b"value")
    print(cache.usable, cache.get_bytes("key"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_in_a_read_only_folder_nothing_is_cached_and_one_warning_logged():
    # not in tmp_path, whose parents are closed to the user that the child becomes when we are root
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled(folder).chmod(0o444)
        folder.chmod(0o555)
        command = [sys.executable, "-c", READER, name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        folder.chmod(0o755)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False None"
    assert done.stderr.count("readonly database); working without it") == 1


def test_clearing_an_absent_folder_creates_nothing(tmp_path):
    assert clear_folder(tmp_path / "none") == 0
    assert not (tmp_path / "none").exists()
    assert folder_nbytes(tmp_path / "none") == 0


def test_clearing_frees_the_room(tmp_path):
    filled(tmp_path)
    assert folder_nbytes(tmp_path) > 100_000
    assert clear_folder(tmp_path) > 50_000
    with Cache(tmp_path) as cache:
        assert len(cache) == 0


def test_keys_differ_when_any_part_does():
    keys = [
        cache_key("text", "ab", "c"),
        cache_key("text", "a", "bc"),
        cache_key("text", "abc"),
        cache_key("text", b"abc"),
        cache_key("text", 1),
        cache_key("text", 1.0),
        cache_key("text", "1"),
        cache_key("image", "abc"),
        cache_key("text", "\ud800"),  # half a character, as a mangled file name gives it
    ]
    assert len(set(keys)) == len(keys)
    assert cache_key("text", "ab", "c") == keys[0]


def test_the_repr_is_for_people(cache):
    cache.put_bytes("key", b"value")
    assert repr(cache).startswith("Cache(1 entries, 0.0 of 512 MiB, ")
