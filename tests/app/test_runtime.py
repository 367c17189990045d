"""Few heaps for many threads: what a thread leaves behind is used by the next."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys

import pytest

from app.runtime import keep_from_collector
from tests.drawn import ROOT

CODE = """
import ctypes, sys, threading
sys.path.insert(0, {root!r})
from app.runtime import limit_malloc_arenas

assert limit_malloc_arenas()
ctypes.CDLL(None).malloc_stats.restype = None
ready = threading.Barrier(13)

def work():
    kept = [bytearray(2000) for _ in range(200)]  # of a heap, not of the system
    ready.wait()
    ready.wait()
    kept.clear()

threads = [threading.Thread(target=work) for _ in range(12)]
for one in threads:
    one.start()
ready.wait()
ctypes.CDLL(None).malloc_stats()
ready.wait()
for one in threads:
    one.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has a heap for each thread")
def test_many_threads_share_few_heaps():
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(root=str(ROOT))], capture_output=True, text=True, check=True
    )
    assert 1 <= done.stderr.count("Arena") <= 2


def test_what_is_there_when_serving_begins_is_not_looked_through_again():
    before = gc.get_freeze_count()
    try:
        assert keep_from_collector() > before + 10_000
        assert len(gc.get_objects()) < 1000
    finally:
        gc.unfreeze()
