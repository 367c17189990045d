"""Labelled pictures to adapt to."""

from __future__ import annotations

import pytest

from atlas_engine.data.support import Support
from atlas_engine.errors import SupportError
from tests.drawn import noise_picture, write_pictures


def test_a_folder_becomes_a_support_with_pretty_names(tmp_path):
    write_pictures(tmp_path / "set", {"red": 3, "dark_green": 1})
    support = Support.from_folder(tmp_path / "set")
    assert support.classes == ("dark green", "red")
    assert support.counts == (1, 3)
    assert support.labels == (0, 1, 1, 1)
    assert tuple(support.squares(16, resize="shortest", interpolation="bicubic").shape) == (4, 3, 16, 16)


@pytest.mark.parametrize(
    ("labels", "classes", "sentence"),
    [
        ((0,), ("a", "b"), "got 2 pictures and 1 labels"),
        ((0, 0), ("a",), "needs at least 2"),
        ((0, 2), ("a", "b"), "label 2 is none of the 2 classes"),
        ((0, 0), ("a", "b"), r"class 'b' has no pictures\. Add at least one"),
    ],
)
def test_what_cannot_be_learned_from_is_refused(labels, classes, sentence):
    pictures = (noise_picture(0), noise_picture(1))
    with pytest.raises(SupportError, match=sentence):
        Support(pictures, labels, classes)
