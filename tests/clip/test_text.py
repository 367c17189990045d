"""Templates filled in, and class names that can or cannot be used."""

from __future__ import annotations

import pytest

from atlas_engine.class_names import MAX_CLASS_NAME
from atlas_engine.clip.text import check_class_names, fill_templates
from atlas_engine.errors import SupportError


def test_braces_in_a_class_name_are_left_alone():
    assert fill_templates("{0.__class__}", ("a {}",)) == ["a {0.__class__}"]


def test_class_names_lose_outer_and_double_blanks():
    assert check_class_names(["  sea   otter ", "seal"]) == ("sea otter", "seal")


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        (["seal"], "got 1 class name, but at least 2 are needed"),
        (["seal", " "], "class name 2 of 2 is empty"),
        (["Seal", "seal"], "stands twice, at 1 and 2"),
        (["seal", "x" * (MAX_CLASS_NAME + 1)], "has 201 characters"),
    ],
)
def test_class_names_that_cannot_be_used_are_named(classes, words):
    with pytest.raises(SupportError, match=words):
        check_class_names(classes, at_least=2)


def test_one_text_instead_of_a_list_is_refused():
    with pytest.raises(SupportError, match="must be a list"):
        check_class_names("seal")


def test_class_names_in_other_scripts_are_taken():
    assert check_class_names(["海獭", "тюлень"], at_least=2) == ("海獭", "тюлень")
