"""The labelled images to adapt to: read, checked, and turned into pixels."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
