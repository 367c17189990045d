"""Template sets by the names of data sets, sentences of one's own, and what is neither."""

from __future__ import annotations

import pytest

from atlas_engine.clip.templates import (
    MAX_TEMPLATE,
    MAX_TEMPLATES,
    TEMPLATES,
    find_templates,
    list_templates,
)
from atlas_engine.errors import ConfigError

PUBLISHED = {
    "cars": 8, "dtd": 8, "eurosat": 3, "gtsrb": 3, "mnist": 1, "resisc45": 18, "sun397": 2, "svhn": 1,
    "cifar10": 18, "cifar100": 18, "imagenet": 80, "stl10": 2, "food101": 1, "caltech101": 34,
    "caltech256": 34, "fgvc-aircraft": 2, "flowers102": 1, "oxford-pets": 1, "cub200": 1, "pascal-voc": 1,
    "country211": 5, "ucf101": 48,
}  # fmt: skip


def test_every_template_has_exactly_one_gap_and_stands_once():
    for name, templates in TEMPLATES.items():
        assert templates, name
        assert all(template.count("{}") == 1 for template in templates), name
        assert len(set(templates)) == len(templates), name
        assert find_templates(name) == find_templates(templates) == templates


def test_the_22_data_sets_of_the_paper_have_as_many_sentences_as_were_published():
    assert len(PUBLISHED) == 22
    assert {name: len(TEMPLATES[name]) for name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("cars", {"a photo of the {}.", "i love my {}!", "a photo of my dirty {}."}),
        ("dtd", {"a photo of a {} texture.", "a photo of the {} object."}),
        ("eurosat", {"a centered satellite photo of {}.", "a centered satellite photo of the {}."}),
        ("gtsrb", {'a zoomed in photo of a "{}" traffic sign.'}),
        ("svhn", {'a photo of the number: "{}".'}),
        ("resisc45", {"satellite imagery of {}.", "aerial view of a {}."}),
        ("cifar100", {"a low contrast photo of the {}.", "a photo of a big {}."}),
        ("imagenet", {"itap of my {}.", "the origami {}.", "a {} in a video game.", "a photo of many {}."}),
        ("caltech101", {"a plushie {}.", "graffiti of the {}."}),
        ("ucf101", {"a video of the person {}.", "a example of a person practicing {}."}),
        ("country211", {"a photo i took while visiting {}."}),
    ],
)
def test_the_sets_hold_the_published_sentences(name, sentences):
    assert sentences <= set(TEMPLATES[name])


def test_coop_has_one_sentence_for_each_of_its_11_data_sets():
    coop = {name.removeprefix("coop-"): TEMPLATES[name] for name in TEMPLATES if name.startswith("coop-")}
    assert len(coop) == 11
    assert set(coop) <= set(PUBLISHED)
    assert all(len(sentences) == 1 for sentences in coop.values())
    assert coop["dtd"] == ("{} texture.",)
    assert coop["ucf101"] == ("a photo of a person doing {}.",)


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("CIFAR-10", "cifar10"),
        ("FGVCAircraft", "fgvc-aircraft"),
        ("Pascal VOC", "pascal-voc"),
        (" dtd ", "dtd"),
    ],
)
def test_a_set_is_found_however_its_name_is_spelled(name, own):
    assert find_templates(name) == TEMPLATES[own]


def test_a_sentence_with_a_gap_is_a_template_set_of_its_own():
    assert find_templates("a blurry {}") == ("a blurry {}",)


def test_several_come_in_a_list_or_as_lines_each_once():
    wanted = ("a {}.", "the {}.", 'a photo of the number: "{}".')
    assert find_templates(["a {}.", "the {}.", "mnist"]) == wanted
    assert find_templates("a {}.\r\n\n  the {}.\na {}.\nmnist\n") == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("foto", "Did you mean 'photo'"),
        ("imagenett", "Did you mean 'imagenet'"),
        ("a photo of a cat", r"is not known\..*Or write a sentence with {} where the class name goes"),
        (["a {}.", "the cat"], "template set 'the cat' is not known"),
        ("", "got no template"),
        ([" "], "got no template"),
        ("{}" + "x" * MAX_TEMPLATE, "too long"),
        ("a \x1b[2J{}", "cannot be shown"),
        ([f"{number} {{}}" for number in range(MAX_TEMPLATES + 1)], "at most 200 are taken"),
    ],
)
def test_what_is_neither_is_refused_in_one_sentence(given, words):
    with pytest.raises(ConfigError, match=words) as caught:
        find_templates(given)
    assert "\n" not in str(caught.value)


def test_the_names_are_listed_with_our_own_sets_first():
    assert list_templates()[:2] == ("plain", "photo")
    assert set(list_templates()) == set(TEMPLATES)
