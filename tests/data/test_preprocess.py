"""Images become pixels of the model's size, and normalised floats."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from atlas_engine.data import preprocess
from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import stack_pixels, to_batch, to_pixels
from atlas_engine.errors import ConfigError, SupportError

OPTIONS = {"resize": "shortest", "interpolation": "bicubic"}


def ramp(height, width):
    rows, columns = np.mgrid[0:height, 0:width]
    pixels = np.stack([255 * rows / height, 255 * columns / width, np.full((height, width), 90)], axis=-1)
    return Image("ramp", pixels.astype(np.uint8))


def test_an_image_of_the_right_size_is_unchanged():
    image = ramp(32, 32)
    pixels = to_pixels(image, 32, **OPTIONS)
    assert torch.equal(pixels, torch.from_numpy(image.pixels.copy()).permute(2, 0, 1))


@pytest.mark.parametrize("shape", [(40, 90), (90, 40), (33, 32), (500, 17), (8, 8)])
def test_every_shape_becomes_a_square(shape):
    assert tuple(to_pixels(ramp(*shape), 32, **OPTIONS).shape) == (3, 32, 32)


def test_the_middle_is_kept_and_the_ends_are_cropped():
    pixels = to_pixels(ramp(32, 96), 32, **OPTIONS)
    left, right = float(pixels[1, :, 0].float().mean()), float(pixels[1, :, -1].float().mean())
    assert left == pytest.approx(85, abs=3)  # a third of 255
    assert right == pytest.approx(170, abs=4)


def test_squashing_keeps_the_ends():
    pixels = to_pixels(ramp(32, 96), 32, resize="squash", interpolation="bicubic")
    assert float(pixels[1, :, 0].float().mean()) < 8
    assert float(pixels[1, :, -1].float().mean()) > 245


def test_stacked_pixels_are_those_of_each_image_even_if_there_is_none():
    images = [ramp(40, 90), ramp(33, 32)]
    stacked = stack_pixels((image for image in images), 32, **OPTIONS)
    assert torch.equal(stacked, torch.stack([to_pixels(image, 32, **OPTIONS) for image in images]))
    none = stack_pixels([], 32, **OPTIONS)
    assert tuple(none.shape) == (0, 3, 32, 32)
    assert none.dtype is torch.uint8


def test_normalisation_is_the_stated_formula():
    grey = Image("grey", np.full((16, 16, 3), 51, np.uint8))
    batch = to_batch([grey], size=16, mean=(0.1, 0.2, 0.3), std=(0.5, 1.0, 2.0))
    torch.testing.assert_close(batch[0, :, 0, 0], torch.tensor([0.2, 0.0, -0.05]))


def test_an_unknown_way_of_resizing_is_refused():
    with pytest.raises(ConfigError, match="'shortest' or 'squash'"):
        to_pixels(ramp(8, 8), 8, resize="stretch", interpolation="bicubic")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="Linux lists what is mapped")
def test_many_pixels_lie_in_a_file_that_has_no_name(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocess, "IN_MEMORY_NBYTES", 2 * 3 * 32 * 32)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    images = [ramp(40, 90), ramp(33, 32), ramp(64, 64)]
    stacked = stack_pixels(images, 32, **OPTIONS)
    assert is_mapped(stacked)
    assert torch.equal(stacked, torch.stack([to_pixels(image, 32, **OPTIONS) for image in images]))
    assert not list(tmp_path.iterdir())
    assert not is_mapped(stack_pixels(images[:2], 32, **OPTIONS))


def is_mapped(pixels):
    """Whether an address of the tensor lies in a file's mapping."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        places, *_, name = line.split(maxsplit=5)
        first, last = (int(place, 16) for place in places.split("-"))
        if first <= pixels.data_ptr() < last:
            return "atlas-" in name or "(deleted)" in name
    return False


def test_a_disk_without_room_for_the_pixels_is_said_before_anything_is_read(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource", reason="needs a limit on file size")
    monkeypatch.setattr(preprocess, "IN_MEMORY_NBYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # as on a full disk
    try:
        with pytest.raises(SupportError, match=r"the pixels of 2 images need 6\.0 KiB in .* TMPDIR"):
            stack_pixels([ramp(32, 32)] * 2, 32, **OPTIONS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not list(tmp_path.iterdir())
