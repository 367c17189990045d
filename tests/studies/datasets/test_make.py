"""A set is written whole or not at all, is left alone when finished, and keeps tracks apart in file names."""

from __future__ import annotations

import json

import numpy as np
import pytest

from atlas_engine.data.decode import png_bytes, read_image
from atlas_engine.data.folders import read_folder, read_labelled_files
from atlas_engine.errors import SupportError
from studies.datasets import TRACK_PATTERN, ImageSet, ImageSetSettings, make_set, origin
from studies.datasets.make import cap_classes
from studies.datasets.readers import SetExample
from tests.drawn import noise_picture
from tests.packed import by_folder, package_of, png, tgz

COLOURS = {
    "red/a_1.png": png(1),
    "red/a_2.png": png(2),
    "red/b_1.png": png(3, side=200),
    "blue/c_1.png": png(4),
}


@pytest.fixture
def toy(tmp_path):
    """A set of a few squares; its package is at hand, so that nothing is fetched."""
    (tmp_path / "packages").mkdir()
    path = tgz(tmp_path / "packages" / "toy-1.0.tgz", {f"package/{n}": data for n, data in COLOURS.items()})
    return ImageSet("toy", "squares", "CC0", (package_of(path),), by_folder)


def make(toy, tmp_path, **settings):
    stages = make_set(
        toy, tmp_path / "out", packages=tmp_path / "packages", settings=ImageSetSettings(**settings)
    )
    return [(stage.doing, stage.done, stage.of) for stage in stages]


def test_a_set_becomes_class_folders_whose_tracks_the_folder_reader_finds(toy, tmp_path):
    stages = make(toy, tmp_path)
    assert stages[:3] == [("fetching", 0, 0), ("unpacking", 0, 0), ("writing", 0, 4)]
    assert stages[-1] == ("writing", 4, 4)
    folder = read_folder(tmp_path / "out" / "toy", track_pattern=TRACK_PATTERN)
    assert folder.classes == ("blue", "red")
    assert {item.name: item.track for item in folder.items} == {
        "blue/00000_00000.png": "00000",
        "red/00000_00000.png": "00000",
        "red/00000_00001.png": "00000",
        "red/00001_00002.png": "00001",
    }
    images = {item.name: image for item, image in read_labelled_files(folder.items)[0]}
    assert images["red/00000_00001.png"] == read_image(COLOURS["red/a_2.png"])
    assert images["red/00001_00002.png"].width == 128


def test_a_finished_set_is_left_as_it_is(toy, tmp_path):
    make(toy, tmp_path)
    (tmp_path / "packages" / "toy-1.0.tgz").unlink()
    first = tmp_path / "out" / "toy" / "red" / "00000_00000.png"
    before = first.stat().st_mtime_ns
    assert make(toy, tmp_path) == []
    assert first.stat().st_mtime_ns == before


def test_a_set_that_was_stopped_half_way_is_made_again(toy, tmp_path):
    stages = make_set(toy, tmp_path / "out", packages=tmp_path / "packages")
    while next(stages).done < 3:
        pass
    assert not (tmp_path / "out" / "toy").exists()
    stages.close()
    left = tmp_path / "out" / ".toy.part" / "red" / "of a run that was killed.png"
    left.parent.mkdir(parents=True)
    left.write_bytes(png())
    assert make(toy, tmp_path)[-1] == ("writing", 4, 4)
    assert not left.exists()
    assert read_folder(tmp_path / "out" / "toy").counts == (1, 3)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["toy"]


def test_other_settings_make_the_set_anew(toy, tmp_path):
    make(toy, tmp_path)
    assert make(toy, tmp_path, per_class=2, least=0)[-1] == ("writing", 3, 3)
    assert read_folder(tmp_path / "out" / "toy").counts == (1, 2)


def test_a_folder_that_is_not_ours_is_not_touched(toy, tmp_path):
    theirs = tmp_path / "out" / "toy" / "holiday.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    with pytest.raises(SupportError, match="was not made by this command"):
        make(toy, tmp_path)
    assert theirs.read_text() == "mine"


def test_a_place_that_cannot_be_written_to_is_named(toy, tmp_path):
    (tmp_path / "out").write_text("a file where the folder should be")
    with pytest.raises(SupportError, match=r"cannot be written .*choose another folder"):
        make(toy, tmp_path)


def test_the_same_package_gives_the_same_files(toy, tmp_path):
    make(toy, tmp_path)
    again = make_set(toy, tmp_path / "again", packages=tmp_path / "packages")
    assert list(again)
    files = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.png"))
    assert len(files) == 4
    assert all((tmp_path / "out" / f).read_bytes() == (tmp_path / "again" / f).read_bytes() for f in files)


def test_the_origin_says_package_licence_and_counts(toy, tmp_path):
    make(toy, tmp_path)
    record = origin(tmp_path / "out" / "toy")
    assert record["licence"] == "CC0"
    assert record["classes"] == {"blue": 1, "red": 3}
    assert record["packages"][0]["sha256"] == toy.packages[0].sha256


def test_an_image_that_the_guard_refuses_is_left_out_and_counted(toy, tmp_path):
    members = {f"package/{name}": data for name, data in COLOURS.items()} | {"package/red/d_1.png": b"odd"}
    path = tgz(tmp_path / "packages" / "odd-1.0.tgz", members)
    make(ImageSet("odd", "squares", "CC0", (package_of(path),), by_folder), tmp_path)
    assert origin(tmp_path / "out" / "odd")["left_out"] == 1


def test_a_package_of_another_layout_is_refused_in_one_sentence(toy, tmp_path):
    def misread(archive):
        yield json.loads(b"{")

    with pytest.raises(SupportError, match=r"toy-1\.0\.tgz: has not the layout that 'toy' is known to have"):
        make(ImageSet("toy", "squares", "CC0", toy.packages, misread), tmp_path)
    assert not (tmp_path / "out").exists()


def test_few_classes_take_more_of_each_and_what_is_taken_is_spread():
    examples = [SetExample(label, str(n), np.array([n])) for label in "ab" for n in range(100)]
    taken = cap_classes(examples, per_class=10, least=50)
    assert [example.track for example in taken["a"]] == [str(n) for n in range(0, 100, 4)]
    assert len(cap_classes(examples, per_class=10, least=0)["b"]) == 10
    assert len(cap_classes(examples, per_class=500, least=0)["b"]) == 100


def test_a_png_gives_back_the_same_image():
    image = noise_picture(3)
    assert read_image(png_bytes(image)) == image
