"""Images become pixels of the model's size, and normalised floats."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atlas_engine.data.image import Image
from atlas_engine.data.preprocess import stack_pixels, to_batch, to_pixels
from atlas_engine.errors import ConfigError

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
