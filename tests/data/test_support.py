"""The labelled images to adapt to: read, checked, and turned into pixels."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
import torch

from atlas_engine.data.decode import png_bytes
from atlas_engine.data.image_files import ImageFiles, image_names, keep_or_stream
from atlas_engine.data.support import Support
from atlas_engine.errors import ImageError, SupportError
from tests.drawn import noise_picture, write_pictures


def test_a_folder_becomes_a_support_with_readable_names(tmp_path):
    write_pictures(tmp_path / "set", {"red": 3, "dark_green": 1})
    support = Support.from_folder(tmp_path / "set")
    assert support.classes == ("dark green", "red")
    assert support.counts == (1, 3)
    assert support.labels == (0, 1, 1, 1)
    assert tuple(support.pixels(16, resize="shortest", interpolation="bicubic").shape) == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("labels", "classes", "sentence"),
    [
        ((0,), ("a", "b"), "got 2 images and 1 labels"),
        ((0, 0), ("a",), "needs at least 2"),
        ((0, 2), ("a", "b"), "label 2 is none of the 2 classes"),
        ((0, 0), ("a", "b"), r"class 'b' has no images\. Add at least one"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(labels, classes, sentence):
    images = (noise_picture(0), noise_picture(1))
    with pytest.raises(SupportError, match=sentence):
        Support(images, labels, classes)


def test_one_image_in_two_classes_is_named():
    images = (noise_picture(0), noise_picture(1), noise_picture(0))
    named = tuple(replace(image, name=name) for image, name in zip(images, "abc", strict=True))
    support = Support(named, (0, 1, 1), ("x", "y"))
    assert support.warnings() == (
        "'a' and 'c' are the same image, once as 'x' and once as 'y'. Keep it where it belongs.",
    )


def test_one_image_twice_in_a_class_is_named():
    support = Support((noise_picture(0), noise_picture(0), noise_picture(1)), (0, 0, 1), ("x", "y"))
    (sentence,) = support.warnings()
    assert sentence.endswith("it counts twice for 'x'. Take one away.")


def test_an_unreadable_file_is_left_out_only_if_asked(tmp_path):
    write_pictures(tmp_path / "set", {"red": 2, "blue": 2})
    (tmp_path / "set" / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"no image")
    with pytest.raises(ImageError, match=r"broken\.png"):
        Support.from_folder(tmp_path / "set")
    support, errors = Support.read(tmp_path / "set", on_error="skip")
    assert support.counts == (2, 2)
    assert "broken.png" in str(errors[0])


# ---- a folder of more images than are kept


def stream(folder, **options):
    return Support.read(folder, most_in_memory=2, **options)


def test_a_large_folder_is_read_when_its_images_are_asked_for(tmp_path):
    kept = Support.from_folder(write_pictures(tmp_path / "set", {"red": 3, "blue": 2}))
    support, _ = stream(tmp_path / "set")
    assert isinstance(support.images, ImageFiles)
    assert repr(support.images) == "ImageFiles(5 images, read when they are asked for)"
    assert (support.labels, support.classes) == (kept.labels, kept.classes)
    assert tuple(support.images) == kept.images
    assert image_names(support.images) == image_names(kept.images)
    assert support.images[1:3] == list(kept.images[1:3])
    assert support.images[-1] == kept.images[-1]
    options = {"resize": "shortest", "interpolation": "bicubic"}
    assert torch.equal(support.pixels(16, **options), kept.pixels(16, **options))


def test_an_unreadable_file_of_a_large_folder_is_named_when_it_is_reached(tmp_path):
    write_pictures(tmp_path / "set", {"red": 2, "blue": 2})
    (tmp_path / "set" / "red" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"no image")
    support, _ = stream(tmp_path / "set")
    with pytest.raises(ImageError, match=r"red/broken\.png"):
        support.pixels(16, resize="shortest", interpolation="bicubic")
    readable, errors = stream(tmp_path / "set", on_error="skip")
    assert readable.counts == (2, 2)
    assert "broken.png" in str(errors[0])


def test_the_same_file_twice_in_a_large_folder_is_named(tmp_path):
    write_pictures(tmp_path / "set", {"red": 2, "blue": 2})
    shutil.copy(tmp_path / "set/red/0.png", tmp_path / "set/blue/copy.png")
    support, _ = stream(tmp_path / "set")
    assert support.warnings() == (
        "'blue/copy.png' and 'red/0.png' are the same image, once as 'blue' and once as 'red'. "
        "Keep it where it belongs.",
    )


def test_many_images_of_any_source_are_named_without_reading_them(tmp_path):
    missing, drawn = tmp_path / "missing.png", noise_picture(0)
    images = keep_or_stream([missing, drawn, png_bytes(drawn)], most=2)
    assert image_names(images) == ("missing.png", "noise 0", "image")
    assert images[2] == drawn
    assert keep_or_stream(images, most=0) is images
    with pytest.raises(ImageError, match=r"missing\.png"):
        images[0]
    assert keep_or_stream([drawn], most=1) == [drawn]


def test_a_large_folder_stays_streamed_with_images_of_none_of_its_classes(tmp_path):
    write_pictures(tmp_path / "set", {"red": 2, "blue": 2})
    support, _ = stream(tmp_path / "set")
    more = support.with_negatives([noise_picture(0)])
    assert isinstance(more.images, ImageFiles)
    assert image_names(more.images) == (*image_names(support.images), "noise 0")
    assert more.images[-1] == noise_picture(0)
    assert more.counts == (2, 2, 1)
