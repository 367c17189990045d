"""An Image is frozen, equal by its pixels, and never copied; limits are checked when built."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from atlas_engine.data import Image, ImageLimits
from atlas_engine.errors import ConfigError, ImageError


def ramp(height=4, width=6):
    return np.arange(height * width * 3, dtype=np.uint8).reshape(height, width, 3)


def test_images_are_equal_by_pixels_and_not_by_name():
    one, other = Image("a.png", ramp()), Image("b.png", ramp())
    assert one == other
    assert hash(one) == hash(other)
    assert one != Image("a.png", ramp() + 1)


def test_the_digest_tells_shapes_apart():
    flat = np.zeros((2, 8, 3), np.uint8)
    assert Image("a", flat).digest != Image("a", flat.reshape(4, 4, 3)).digest


def test_pixels_cannot_be_written_and_do_not_follow_their_source():
    source = ramp()
    image = Image("a", source)
    source[:] = 0
    assert image.pixels[0, 0, 1] == 1
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0, 0, 0] = 9


def test_a_pickle_gives_back_an_equal_read_only_image():
    image = Image("a", ramp())
    again = pickle.loads(pickle.dumps(image))
    assert again == image
    assert again.name == "a"
    assert not again.pixels.flags.writeable


def test_a_deep_copy_is_the_same_object():
    image = Image("a", ramp())
    assert copy.deepcopy([image])[0] is image
    assert copy.copy(image) is image


def test_the_repr_is_for_people():
    image = Image("a.png", ramp(4, 6))
    assert repr(image) == f"Image('a.png', 6×4 px, {image.digest[:8]})"


@pytest.mark.parametrize(
    "pixels", [np.zeros((4, 4)), np.zeros((4, 4), np.uint8), np.zeros((0, 4, 3), np.uint8)]
)
def test_pixels_of_another_kind_are_refused(pixels):
    with pytest.raises(ImageError, match=r"^a: an Image holds uint8"):
        Image("a", pixels)


@pytest.mark.parametrize(
    "wrong",
    [{"max_bytes": 0}, {"max_pixels": -1}, {"min_side": 1.5}, {"keep_side": 0}, {"seconds": float("nan")}],
)
def test_limits_out_of_range_are_refused_when_built(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ImageLimits(**wrong)
