"""Named sets: a class is a description that a folder can have, and an image is kept whole on a square."""

from __future__ import annotations

import json

import numpy as np
import pytest

from atlas_engine.data.decode import png_bytes
from atlas_engine.data.folders import display_name, read_folder, read_labelled_files
from atlas_engine.data.image import Image
from studies.datasets import SETS, ImageSet, ImageSetSettings, drawings, make, make_set, origin
from tests.packed import by_folder, deb, package_of, png, tgz

CLIP_ART = "usr/share/openclipart/png"
STAMPS = "usr/share/tuxpaint/stamps"


def labels(examples):
    return [example.label for example in examples]


def test_emoji_have_their_own_names_without_flags_and_skin_tones(tmp_path):
    entries = [
        {"unified": "1F34E", "name": "RED APPLE", "short_name": "apple", "category": "Food & Drink"},
        {"unified": "1F600", "name": None, "short_name": "grinning", "category": "Smileys & Emotion"},
        {"unified": "1F1E6-1F1E8", "name": "Ascension Island Flag", "category": "Flags"},
        {"unified": "1F3FB", "name": "EMOJI MODIFIER", "category": "Component"},
        {"unified": "1F350", "name": "PEAR", "category": "Food & Drink"},
    ]
    drawn = [entry["unified"].lower() for entry in entries[:4]] + ["1f44b-1f3fb"]
    images = {f"package/assets/{code}.webp": code.encode() for code in drawn}
    archive = tgz(tmp_path / "e.tgz", images | {"package/emoji.json": json.dumps(entries).encode()})
    found = {example.label: example.image for example in drawings.named_emoji(archive, archive)}
    assert found == {"red apple": b"1f34e", "grinning": b"1f600"}


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("signs_and_symbols/clocks/Alarm_clock_gerald_g._01", "alarm clock gerald, clocks"),
        ("food/meats_and_eggs/steak-v0.1", "steak, meats and eggs"),
        ("buildings/homes/home11", "home, homes"),
        ("shapes/flowchart/01_02", "flowchart"),
        ("recreation/games/cards/white/white_c_10", "white, playing cards"),
        ("unsorted/ambulanza", "ambulanza"),
        ("special/cd_jacket_template", "jacket template"),
        (f"tools/{'long ' * 20}", ("long " * 12).strip()),
    ],
)
def test_clip_art_is_described_by_its_title_and_its_theme(tmp_path, path, label):
    archive = deb(tmp_path / "o.deb", {f"{CLIP_ART}/{path}.png": b"png"})
    assert labels(drawings.named_clip_art(archive)) == [label]


def test_clip_art_that_its_title_does_not_describe_is_left_out(tmp_path):
    folders = ("shapes/stars", "computer/icons/lemon-theme/apps", "signs_and_symbols", "unsorted")
    names = [f"{CLIP_ART}/{folder}/{stem}.png" for folder in folders for stem in ("tree", "01")]
    archive = deb(tmp_path / "o.deb", dict.fromkeys(names, b"png"))
    assert labels(drawings.named_clip_art(archive)) == ["tree"]


def test_stamps_are_described_by_the_first_line_beside_them(tmp_path):
    members = {
        f"{STAMPS}/food/apple.png": b"apple",
        f"{STAMPS}/food/apple.txt": b"A Red apple.\nde.utf8=Ein roter Apfel.\n",
        f"{STAMPS}/food/odd.png": b"no words",
        f"{STAMPS}/food/pear.txt": b"No picture.",
        f"{STAMPS}/toys/toy.png": b"toy",
        f"{STAMPS}/toys/toy.txt": 'A toy called a "R\u00e4uchermann".'.encode(),
    }
    found = {
        example.label: example.image for example in drawings.named_stamps(deb(tmp_path / "t.deb", members))
    }
    assert found == {"a red apple": b"apple", "a toy called a r\u00e4uchermann": b"toy"}


@pytest.mark.parametrize(
    "text", ["a/b\\c:d\0e", "..hidden", "x" * 900, "\u00e9" * 300, "two  words_here .", 'w"?*|<>']
)
def test_a_description_is_safe_as_the_name_of_a_folder_and_reads_the_same_there(tmp_path, text):
    label = drawings.description(text)
    assert label
    assert not set(label) & set('/\\:\0"?*|<>')
    assert not label.startswith(".")
    assert len(label.encode()) <= 200
    assert display_name(label) == label
    (tmp_path / label).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [label]


def test_nothing_is_left_of_a_description_of_signs_alone():
    assert drawings.description(" ../:. ") == ""


def made(tmp_path, members, *, role="named", **settings):
    """The folder of a set whose package has these members."""
    (tmp_path / "packages").mkdir(exist_ok=True)
    path = tgz(tmp_path / "packages" / "toy-1.0.tgz", {f"package/{n}": data for n, data in members.items()})
    toy = ImageSet("toy", "squares", "CC0", (package_of(path),), by_folder, role=role)
    chosen = ImageSetSettings(**settings)
    assert list(make_set(toy, tmp_path / role, packages=tmp_path / "packages", settings=chosen))
    return tmp_path / role / "toy"


def bar(height, width):
    return png_bytes(Image("bar", np.zeros((height, width, 3), np.uint8)))


def test_a_long_image_is_kept_whole_on_a_white_square(tmp_path):
    members = {"wide bar/a_0.png": bar(20, 80), "tall bar/b_0.png": bar(400, 100)}
    folder = read_folder(made(tmp_path, members, side=64))
    images = {
        item.name.partition("/")[0]: image.pixels for item, image in read_labelled_files(folder.items)[0]
    }
    assert images["wide bar"].shape == images["tall bar"].shape == (64, 64, 3)
    assert images["wide bar"][28:36].max() < 10  # the bar reaches from side to side
    assert images["wide bar"][[0, 20, 44, 63]].min() == 255
    assert images["tall bar"][:, 28:36].max() < 10
    assert images["tall bar"][:, [0, 20, 44, 63]].min() == 255


def test_an_image_of_a_task_vectors_set_keeps_its_shape(tmp_path):
    folder = read_folder(made(tmp_path, {"a/a_0.png": bar(20, 80), "b/b_0.png": png()}, role="task_vector"))
    (_, image), *_ = read_labelled_files(folder.items)[0]
    assert (image.height, image.width) == (20, 80)


def test_a_class_all_of_whose_images_are_refused_has_no_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(make, "MOST_NAMED_PIXELS", 1000)
    members = {"a/a_0.png": png(), "b/b_0.png": png(1), "large/l_0.png": png(side=40), "odd/o_0.png": b"odd"}
    out = made(tmp_path, members)
    assert read_folder(out).classes == ("a", "b")
    assert origin(out)["left_out"] == 2
    assert origin(out)["classes"] == {"a": 1, "b": 1}


def test_named_sets_are_not_for_task_vectors():
    by_role = {
        role: {row.name for row in SETS.values() if row.role == role} for role in ("task_vector", "named")
    }
    assert by_role["named"] == {name for name in SETS if name.startswith("named-")}
    assert len(by_role["named"]) == 4
    assert {"mnist", "doodles", "emoji-fluent", "clip-art"} <= by_role["task_vector"]
