"""Reading strangers' images has a deadline and can be stopped, also in the middle of one image."""

from __future__ import annotations

import shutil
import threading
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import FewShotRequest, adapt_few_shot, read_request
from app.handlers.uploads import (
    ZIP_LIMITS,
    ClassRow,
    ReadBudget,
    ReadingTimeError,
    UploadedImage,
    read_images,
    unpack_classes,
)
from app.limits import Limits
from app.priority_lock import READING
from app.session import StoppedEarlyError, StopSignal
from app.storage import NoRoomError

PROMPT_SECONDS = 2.0


@pytest.fixture
def files(tmp_path):
    for number in range(6):
        pixels = np.random.default_rng(number).integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return [str(path) for path in sorted(tmp_path.glob("*.png"))]


@pytest.fixture
def busy_reader():
    """Somebody else's image that takes long: the helper process is held as long as the block lasts."""
    held, done = threading.Event(), threading.Event()

    def hold():
        with READING.hold(urgent=False):
            held.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    yield
    done.set()
    thread.join()


def test_stop_ends_reading_in_the_middle_of_an_image(files, busy_reader):
    stop_signal = StopSignal()
    threading.Timer(0.3, stop_signal.set).start()
    start = time.monotonic()
    with pytest.raises(StoppedEarlyError, match=r"Stopped before anything was learned"):
        read_images([UploadedImage(path) for path in files], ReadBudget(stop_signal))
    assert time.monotonic() - start < PROMPT_SECONDS


def test_a_run_can_be_stopped_while_it_reads(files, busy_reader):
    request = FewShotRequest((ClassRow("a", tuple(files[:3])), ClassRow("b", tuple(files[3:]))))
    stop_signal = StopSignal()
    threading.Timer(0.3, stop_signal.set).start()
    start = time.monotonic()
    with pytest.raises(atlas.AtlasError, match="Stopped"):
        list(adapt_few_shot(None, request, stop_signal=stop_signal))
    assert time.monotonic() - start < PROMPT_SECONDS


def test_reading_has_a_deadline_for_all_images_together(files, busy_reader):
    request = FewShotRequest((ClassRow("a", tuple(files[:3])), ClassRow("b", tuple(files[3:]))))
    start = time.monotonic()
    with pytest.raises(ReadingTimeError) as refused:
        list(read_request(request, ReadBudget(seconds=0.5)))
    assert str(refused.value) == text.server.slow_reading(0.5)
    assert time.monotonic() - start < PROMPT_SECONDS


def test_one_image_that_cannot_be_read_is_left_out_and_the_others_are_read(files, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    images, refusals = read_images([UploadedImage(path) for path in [*files, str(tmp_path / "bad.png")]])
    assert (len(images), len(refusals)) == (6, 1)


def test_a_zip_is_counted_by_what_it_unpacks_to_and_not_by_what_it_says(tmp_path, monkeypatch, files):
    archive, folder = tmp_path / "a.zip", tmp_path / "unpacked"
    folder.mkdir()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for place, path in enumerate(files):
            packed.write(path, f"{'ab'[place % 2]}/{place}.png")
    unpacked = 2 * sum(len(Path(path).read_bytes()) for path in files)
    free = (Limits().free_megabytes << 20) + unpacked - 1  # a byte too few
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with pytest.raises(NoRoomError, match="no room"):
        unpack_classes(str(archive), folder)
    assert list(folder.iterdir()) == []
    assert ZIP_LIMITS.max_total_bytes == Limits().zip_megabytes << 20
