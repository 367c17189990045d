"""What reading may cost: computing time per image, pixels kept; and a stop works while an image is read."""

from __future__ import annotations

import io
import re
import threading
import time
import zipfile

import numpy as np
import pytest
from PIL import Image as PILImage

import atlas_engine as atlas
from atlas_engine.data import ImageLimits, read_image, read_images, read_images_in, read_zip
from atlas_engine.data.support import Support
from atlas_engine.errors import ImageError, StoppedError


def encoded(width, height, kind="PNG"):
    stream = io.BytesIO()
    PILImage.effect_noise((width, height), 40).convert("RGB").save(stream, kind)
    return stream.getvalue()


def many_scans(side=6000, times=900):
    """A progressive JPEG of one grey whose last scan, 61 bytes, is repeated: small, and slow to decode."""
    stream = io.BytesIO()
    PILImage.new("L", (side, side), 128).save(stream, "JPEG", progressive=True)
    data, end = stream.getvalue()[:-2], stream.getvalue()[-2:]
    last = data[[found.start() for found in re.finditer(rb"\xff\xda", data)][-1] :]
    return data + last * times + end


SMALL = encoded(32, 24)


@pytest.fixture(scope="module")
def slow():
    data = many_scans()
    assert len(data) < 200_000
    return data


def test_an_image_that_computes_for_too_long_is_ended_with_a_sentence_and_the_next_one_reads(slow):
    began = time.monotonic()
    with pytest.raises(ImageError) as caught:
        read_image(slow, name="scans.jpg", limits=ImageLimits(cpu_seconds=0.3))
    assert str(caught.value) == (
        "scans.jpg: takes more than 0.3 s of computing, so it is not taken. "
        "Save it as JPEG or PNG and try again."
    )
    assert time.monotonic() - began < 15  # whole, it takes over 20 s of computing
    assert read_image(SMALL).width == 32


def test_by_default_one_image_may_compute_for_a_few_seconds_only():
    assert ImageLimits().cpu_seconds <= 6  # the slowest honest image, 40 million pixels of WEBP, takes 2


@pytest.mark.parametrize("size", [(13_440, 448), (448, 13_440), (6000, 200), (4000, 3000), (2000, 1000)])
def test_no_image_keeps_more_than_a_million_pixels(size):
    image = read_image(encoded(*size, kind="JPEG"))
    assert image.pixels.size <= 3_000_000
    assert image.width / image.height == pytest.approx(size[0] / size[1], rel=0.02)  # shrunk, not cropped


def test_an_image_within_the_limit_keeps_its_short_side():
    assert read_image(encoded(2000, 1000)).pixels.shape == (448, 896, 3)
    assert read_image(encoded(300, 1500)).pixels.shape == (1500, 300, 3)
    wide = np.zeros((448, 13_440, 3), np.uint8)
    assert read_image(wide).pixels.size <= 3_000_000  # arrays too
    assert read_image(wide, limits=ImageLimits(keep_pixels=10_000_000)).pixels.shape == wide.shape


def test_reading_stops_while_an_image_is_decoded_within_two_seconds(slow):
    flag = threading.Event()
    timer = threading.Timer(0.4, flag.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(StoppedError, match=r"^scans\.jpg: reading was stopped\."):
        read_image(slow, name="scans.jpg", stop=flag.is_set)
    assert time.monotonic() - began < 0.4 + 2
    assert read_image(SMALL).width == 32


def test_reading_stops_while_it_waits_for_another_visitors_image(slow):
    def read_slowly():
        with pytest.raises(ImageError, match="of computing"):
            read_image(slow, limits=ImageLimits(cpu_seconds=3))

    other = threading.Thread(target=read_slowly)
    other.start()
    time.sleep(0.3)
    end = time.monotonic() + 0.4
    with pytest.raises(StoppedError):
        read_image(SMALL, stop=lambda: time.monotonic() > end)  # a deadline
    assert time.monotonic() < end + 2
    assert other.is_alive(), "the other image was being decoded all the time, and was not disturbed"
    other.join()


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_reading_stops_between_images_whatever_becomes_of_the_errors(on_error):
    asked = []

    def stop():
        asked.append(True)
        return len(asked) > 12

    with pytest.raises(StoppedError):
        read_images([SMALL] * 100, on_error=on_error, stop=stop, isolated=False)
    assert len(asked) == 13


def test_a_stop_that_is_never_asked_for_changes_nothing(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(SMALL)
    support, errors = Support.read(tmp_path, stop=lambda: False)
    assert (len(support), errors) == (2, [])
    with pytest.raises(StoppedError):
        Support.from_folder(tmp_path, stop=lambda: True)
    with pytest.raises(atlas.AtlasError):  # a StoppedError is one
        Support.from_folder(tmp_path, stop=lambda: True)


def test_unpacking_a_zip_stops(tmp_path):
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(4):
            archive.writestr(f"{'ab'[number % 2]}/{number}.png", SMALL)
    assert len(read_zip(path, stop=lambda: False).items) == 4
    for read in (read_zip, read_images_in):
        with pytest.raises(StoppedError, match=r"^photos\.zip: reading was stopped"):
            read(path, stop=lambda: True)
