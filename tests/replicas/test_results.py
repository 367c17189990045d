"""The store: what is put comes back by the hash of its bytes, or a sentence says why not."""

from __future__ import annotations

import hashlib
import os
import time

import pytest

import atlas_engine as atlas
from app.replicas.results import NoResultError, Results


@pytest.fixture(params=["folder", "bucket"])
def results(request, tmp_path):
    """A folder, and a bucket by fsspec: the one that it keeps in memory."""
    return Results(str(tmp_path) if request.param == "folder" else f"memory://{tmp_path.name}")


def test_bytes_come_back_by_the_hash_of_themselves(results):
    name = results.put(b"recipe")
    assert name == hashlib.sha256(b"recipe").hexdigest()
    assert results.get(name) == b"recipe"
    assert results.put(b"recipe") == name


def test_what_is_not_there_is_told(results):
    with pytest.raises(NoResultError, match="no result of that id"):
        results.get("0" * 64)


@pytest.mark.parametrize("name", ["", "../secret", "0" * 63, "G" * 64])
def test_an_id_that_is_no_hash_is_refused(results, name):
    with pytest.raises(atlas.AtlasError, match="64 hexadecimal digits"):
        results.get(name)


def test_the_wish_to_stop_reaches_whoever_asks_for_it(results):
    run = "0" * 32
    assert not results.is_stopped(run)
    results.stop(run)
    assert results.is_stopped(run)
    assert not results.is_stopped("1" * 32)
    results.forget_run(run)
    assert not results.is_stopped(run)


def test_a_file_that_was_changed_is_not_handed_out(tmp_path):
    results = Results(str(tmp_path))
    name = results.put(b"recipe")
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"another")
    with pytest.raises(NoResultError):
        results.get(name)


def test_old_results_go_and_new_ones_stay(tmp_path):
    first = Results(str(tmp_path), keep_days=1)
    old, new = first.put(b"old"), first.put(b"new")
    day_before_yesterday = time.time() - 2 * 86400
    os.utime(tmp_path / f"{old}.atlas.safetensors", (day_before_yesterday, day_before_yesterday))
    Results(str(tmp_path), keep_days=1).put(b"newer")
    assert first.get(new) == b"new"
    with pytest.raises(NoResultError):
        first.get(old)
