"""Folders and honest zips become labelled sets in a fixed order; a mistake is explained in one sentence."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from atlas_engine.data import read_folder, read_images_in, read_labelled_files, read_zip
from atlas_engine.data.folders import display_name, natural_key
from atlas_engine.errors import ConfigError, ImageError, SupportError

PETS = ("cat/10.png", "cat/2.png", "guinea_pig/1.png", "guinea_pig/2.PNG")


def png(shade=0):
    stream = io.BytesIO()
    Image.new("RGB", (16, 16), (shade, shade, shade)).save(stream, "PNG")
    return stream.getvalue()


def folder_of(root, *names):
    for shade, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(shade))
    return root


def zip_of(*names):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for shade, name in enumerate(names):
            archive.writestr(name, b"" if name.endswith("/") else png(shade))
    return stream.getvalue()


@pytest.fixture
def pets(tmp_path):
    return folder_of(tmp_path / "pets", *PETS)


def test_each_sub_folder_is_a_class_in_natural_order(pets):
    found = read_folder(pets)
    assert found.classes == ("cat", "guinea_pig")
    assert found.display_names == ("cat", "guinea pig")
    assert [(item.name, item.label) for item in found.items] == [
        ("cat/2.png", 0),
        ("cat/10.png", 0),
        ("guinea_pig/1.png", 1),
        ("guinea_pig/2.PNG", 1),
    ]
    assert found.counts == (2, 2)
    assert repr(found) == "ClassFolder('pets', 2 classes, 4 images)"


@pytest.mark.parametrize("wrapper", ["", "my pets/", "./"])
def test_a_zip_gives_the_same_set_as_the_folder_with_or_without_a_wrapper(pets, wrapper, tmp_path):
    path = tmp_path / "pets.zip"
    path.write_bytes(zip_of(*(wrapper + name for name in PETS)))
    folder, packed = read_folder(pets), read_zip(path)
    assert packed.classes == folder.classes
    assert [(i.name, i.label) for i in packed.items] == [(i.name, i.label) for i in folder.items]
    assert [i.source for i in packed.items] == [Path(i.source).read_bytes() for i in folder.items]
    assert read_zip(path.read_bytes(), name="pets.zip") == packed


def test_backslashes_in_a_zip_are_folders_too():
    assert read_zip(zip_of("cat\\1.png", "dog\\1.png")).classes == ("cat", "dog")


def test_files_that_are_not_images_are_ignored_and_listed(pets):
    for name in (
        "cat/.DS_Store",
        "cat/notes.txt",
        "cat/Thumbs.db",
        "cat/phone.heic",
        ".git/x.png",
        "__MACOSX/a.png",
    ):
        folder_of(pets, name)
    folder_of(pets, "stray.png", "cat/deeper/1.png")
    found = read_folder(pets)
    assert found.counts == (2, 2)
    reasons = {entry.name: entry.reason for entry in found.ignored}
    assert set(reasons) == {
        *("cat/.DS_Store", "cat/notes.txt", "cat/Thumbs.db", "cat/phone.heic"),
        *(".git", "__MACOSX", "stray.png", "cat/deeper"),
    }
    assert reasons["stray.png"] == "lies beside the class folders"
    assert "Save it as JPEG or PNG" in reasons["cat/phone.heic"]
    assert "Save it" not in reasons["cat/notes.txt"]


def test_a_zip_ignores_the_same(pets):
    clutter = ("__MACOSX/cat/._2.png", "cat/.DS_Store", "cat/notes.txt", "cat/deeper/1.png", "stray.png")
    found = read_zip(zip_of(*PETS, *clutter))
    assert found.counts == (2, 2)
    assert {entry.name for entry in found.ignored} == set(clutter)


@pytest.mark.parametrize("read", [read_folder, lambda path: read_zip(zip_folder(path), name=path.name)])
@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("1.png", "2.png"), "pets: has no sub-folders. Make one per class"),
        (("cat/1.png",), r"pets: has 1 class \(cat\), but at least 2 are needed"),
        (
            ("cat/1.png", "dog/1.txt"),
            r"pets: class folder 'dog' has no images in it \('dog/1.txt' is not a JPEG",
        ),
        (("cat/1.png", "dog/.hidden"), "pets: class folder 'dog' has no images in it"),
        (("guinea_pig/1.png", "Guinea  Pig/1.png"), "pets: folders '.*' and '.*' name the same class"),
        (
            ("cat/1.png", "x" * 201 + "/1.png"),
            "pets: the class name 'x.*' has 201 characters, but at most 200",
        ),
        (("cat/1.png", "___/1.png"), "pets: folder '___' names no class"),
    ],
)
def test_a_set_that_cannot_be_used_says_why(read, names, words, tmp_path):
    with pytest.raises(SupportError, match=f"^{words}"):
        read(folder_of(tmp_path / "pets", *names))


def zip_folder(root):
    files = sorted(path for path in root.rglob("*") if path.is_file())
    folders = {f"{path.parent.relative_to(root).as_posix()}/" for path in files if path.parent != root}
    return zip_of(*sorted(folders), *(path.relative_to(root).as_posix() for path in files))


def test_one_class_is_enough_where_the_caller_says_so(tmp_path):
    folder_of(tmp_path, "cat/1.png")
    assert read_folder(tmp_path, min_classes=1).classes == ("cat",)


def test_a_missing_folder_and_a_file_have_their_sentences(tmp_path):
    with pytest.raises(SupportError, match=r"^nowhere: there is no such folder"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "a.zip").write_bytes(zip_of(*PETS))
    with pytest.raises(SupportError, match=r"^a\.zip: is a file, not a folder.*read_zip"):
        read_folder(tmp_path / "a.zip")
    with pytest.raises(SupportError, match=r"^b\.zip: there is no such zip"):
        read_zip(tmp_path / "b.zip")
    with pytest.raises(SupportError, match=r"is not a zip file.*read_folder"):
        read_zip(tmp_path)


def test_a_link_that_leads_outside_is_refused(pets, tmp_path):
    (tmp_path / "secret.png").write_bytes(png())
    (pets / "cat" / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.raises(SupportError, match=r"^pets: 'cat/link\.png' is a link that leads outside"):
        read_folder(pets)


def test_a_class_folder_that_leads_outside_is_refused(pets, tmp_path):
    folder_of(tmp_path / "elsewhere", "1.png")
    (pets / "dog").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    with pytest.raises(SupportError, match=r"^pets: 'dog' is a link that leads outside"):
        read_folder(pets)


def test_links_inside_the_folder_are_followed_and_broken_ones_ignored(pets):
    (pets / "guinea_pig" / "3.png").symlink_to("../cat/2.png")
    (pets / "cat" / "broken.png").symlink_to("nothing.png")
    (pets / "cat" / "loop.png").symlink_to("loop.png")
    (pets / "dog").symlink_to("cat", target_is_directory=True)
    found = read_folder(pets)
    assert found.counts == (2, 3)
    assert {entry.name for entry in found.ignored} == {"cat/broken.png", "cat/loop.png", "dog"}


def test_a_track_is_read_from_the_name_only_where_asked(tmp_path):
    folder_of(tmp_path, "stop/00003_00017.png", "stop/extra.png", "yield/00003_00001.png")
    assert {item.track for item in read_folder(tmp_path).items} == {None}
    tracks = {item.name: item.track for item in read_folder(tmp_path, track_pattern=r"^(\d+)_").items}
    assert tracks == {
        "stop/00003_00017.png": "00003",
        "stop/extra.png": None,
        "yield/00003_00001.png": "00003",
    }
    with pytest.raises(ConfigError, match=r"track_pattern '\(' is no regular expression"):
        read_folder(tmp_path, track_pattern="(")


def test_read_images_in_finds_images_at_any_depth(pets, tmp_path):
    folder_of(pets, "top.png", "cat/deeper/1.png", "readme.md", ".hidden/1.png")
    expected = [
        "cat/2.png",
        "cat/10.png",
        "cat/deeper/1.png",
        "guinea_pig/1.png",
        "guinea_pig/2.PNG",
        "top.png",
    ]
    found = read_images_in(pets)
    assert [item.name for item in found.items] == expected
    assert {entry.name for entry in found.ignored} == {"readme.md", ".hidden"}
    assert repr(found) == "UnlabelledFolder('pets', 6 images)"
    assert [item.name for item in read_images_in(zip_folder(pets)).items] == expected
    (tmp_path / "none").mkdir()
    with pytest.raises(SupportError, match=r"^none: has no JPEG, PNG or WEBP images"):
        read_images_in(tmp_path / "none")


def test_items_are_read_with_their_labels_and_bad_ones_are_named(pets):
    (pets / "cat" / "3.png").write_bytes(b"nonsense")
    items = read_folder(pets).items
    read, errors = read_labelled_files(items, on_error="skip")
    assert [(item.label, image.name) for item, image in read] == [
        (item.label, item.name) for item in items if item.name != "cat/3.png"
    ]
    assert np.array_equal(read[0][1].pixels, np.ones((16, 16, 3)))  # cat/2.png was drawn second, in shade 1
    assert [str(error).split(":")[0] for error in errors] == ["cat/3.png"]
    with pytest.raises(ImageError, match=r"^cat/3\.png: "):
        read_labelled_files(items)


def test_names_sort_as_people_count():
    names = ["a10", "a2", "B1", "a2b", "a" + "9" * 5000, "a02", "7", ""]
    assert sorted(names, key=natural_key) == ["", "7", "a02", "a2", "a2b", "a10", "a" + "9" * 5000, "B1"]


def test_display_names_agree_on_both_encodings_of_an_accent():
    assert display_name("cafe\u0301_noir") == display_name("caf\u00e9 noir") == "caf\u00e9 noir"
    assert display_name("t-shirt") == "t-shirt"
