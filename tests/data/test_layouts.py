"""Labelled images in the layouts that people have become the same classes and files."""

from __future__ import annotations

import csv
import json
import shutil

import pytest
from PIL import Image as PILImage

from atlas_engine.data.layouts import read_dataset
from atlas_engine.data.support import Support
from atlas_engine.errors import HubError, SupportError
from tests.drawn import write_pictures

COUNTS = {"blue": 2, "red": 3}


def labels_of(folder):
    """(class, file name) of every item."""
    return sorted((folder.classes[item.label], item.source.name) for item in folder.items)


WANTED = sorted((name, f"{index}.png") for name, count in COUNTS.items() for index in range(count))


@pytest.fixture
def pictures(tmp_path):
    """images/blue/0.png, …"""
    write_pictures(tmp_path / "images", COUNTS)
    return tmp_path


def rows(root):
    return [(path.relative_to(root).as_posix(), path.parent.name) for path in sorted(root.rglob("*.png"))]


def write_csv(path, header, lines):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *lines])


# ---- split folders


def test_train_and_test_folders_are_two_sets(tmp_path):
    write_pictures(tmp_path / "pets" / "train", COUNTS)
    write_pictures(tmp_path / "pets" / "test", {"blue": 1, "red": 1})
    assert labels_of(read_dataset(tmp_path / "pets")) == WANTED
    assert len(read_dataset(tmp_path / "pets", split="test").items) == 2
    assert len(Support.from_folder(tmp_path / "pets")) == 5
    assert len(Support.from_folder(tmp_path / "pets", split="test")) == 2
    with pytest.raises(SupportError, match=r"pets: has no split 'val', but test, train\. Name one"):
        read_dataset(tmp_path / "pets", split="val")


def test_a_zip_of_class_folders_is_read_as_the_folder_is(pictures):
    archive = shutil.make_archive(str(pictures / "zipped"), "zip", pictures / "images")
    assert read_dataset(archive).counts == (2, 3)
    assert len(Support.from_folder(archive)) == 5
    with pytest.raises(SupportError, match=r"0\.png: is no table\. Give a folder of images, a zip"):
        read_dataset(pictures / "images" / "red" / "0.png")


def test_a_class_may_be_called_train(tmp_path):
    write_pictures(tmp_path / "vehicles", {"train": 1, "bus": 1})
    assert read_dataset(tmp_path / "vehicles").classes == ("bus", "train")
    write_pictures(tmp_path / "words", {"train": 1, "test": 1})
    assert read_dataset(tmp_path / "words").classes == ("test", "train")


# ---- tables


def test_metadata_csv_beside_the_images_labels_them(pictures):
    write_csv(pictures / "images" / "metadata.csv", ["file_name", "label"], rows(pictures / "images"))
    assert labels_of(read_dataset(pictures / "images")) == WANTED


def test_a_table_of_any_name_with_the_usual_columns_is_read(pictures):
    write_csv(pictures / "mine.csv", ["Path", "note", "Class"], [(a, "x", b) for a, b in rows(pictures)])
    assert labels_of(read_dataset(pictures / "mine.csv")) == WANTED
    lines = [json.dumps({"file_name": file, "label": label}) for file, label in rows(pictures)]
    (pictures / "mine.jsonl").write_text("\n".join(lines))
    assert labels_of(read_dataset(pictures / "mine.jsonl")) == WANTED


def test_a_table_that_names_missing_files_says_which_and_what_to_do(pictures):
    lines = [*rows(pictures), *((f"images/gone{n}.png", "red") for n in range(5))]
    write_csv(pictures / "mine.csv", ["file", "label"], lines)
    with pytest.raises(SupportError) as caught:
        read_dataset(pictures / "mine.csv")
    assert str(caught.value).startswith(
        "mine.csv: names 5 file(s) that are not there, such as 'images/gone0.png'"
    )
    assert str(caught.value).endswith("or remove their rows.")


@pytest.mark.parametrize(
    ("header", "line", "sentence"),
    [
        (["image_id", "label"], ["1", "red"], "has the columns image_id, label, but file_name and label are"),
        (["file", "label"], ["images/red/0.png", ""], r"gives '.*0\.png' no label\. Label it"),
        (["file", "label"], ["../secret.png", "red"], "lies outside its folder"),
        (["file", "label"], ["images/red/0.png", "red"], r"has 1 class\(es\), but at least 2"),
    ],
    ids=["columns", "label", "outside", "classes"],
)
def test_a_table_that_cannot_be_used_is_one_sentence(pictures, header, line, sentence):
    write_csv(pictures / "mine.csv", header, [line])
    with pytest.raises(SupportError, match=sentence):
        read_dataset(pictures / "mine.csv")


@pytest.mark.parametrize("text", ["", "[", '{"a": 1}', "[]", '[{"image": "x.png"}]'])
def test_a_damaged_export_is_one_sentence(pictures, text):
    (pictures / "project.json").write_text(text)
    with pytest.raises(SupportError, match=r"project\.json: .*(Export|export)"):
        read_dataset(pictures / "project.json")


# ---- labelling tools


def label_studio_task(number, image, choice):
    result = [{"type": "choices", "from_name": "c", "to_name": "i", "value": {"choices": [choice]}}]
    return {
        "id": number,
        "data": {"image": image},
        "annotations": [{"was_cancelled": True, "result": []}, {"was_cancelled": False, "result": result}],
    }


def test_label_studio_exports_are_read_in_both_forms(pictures):
    tasks = [
        label_studio_task(number, f"/data/local-files/?d={file}", label)
        for number, (file, label) in enumerate(rows(pictures))
    ]
    tasks.append({"id": 99, "data": {"image": "/data/local-files/?d=unlabelled.png"}, "annotations": []})
    (pictures / "project.json").write_text(json.dumps(tasks))
    assert labels_of(read_dataset(pictures / "project.json")) == WANTED
    flat = [{"id": n, "image": file, "choice": label} for n, (file, label) in enumerate(rows(pictures))]
    (pictures / "min.json").write_text(json.dumps(flat))
    assert labels_of(read_dataset(pictures / "min.json")) == WANTED


def test_uploads_of_label_studio_are_found_beside_the_export(tmp_path):
    for name in ("ab-1.png", "cd-2.png"):
        PILImage.new("RGB", (32, 32)).save(tmp_path / name)
    tasks = [
        label_studio_task(1, "/data/upload/3/ab-1.png", "cat"),
        label_studio_task(2, "/data/upload/3/cd-2.png", "dog"),
    ]
    (tmp_path / "project.json").write_text(json.dumps(tasks))
    assert labels_of(read_dataset(tmp_path / "project.json")) == [("cat", "ab-1.png"), ("dog", "cd-2.png")]


def test_a_fiftyone_export_is_read(tmp_path):
    (tmp_path / "exported" / "data").mkdir(parents=True)
    for name in ("a", "b", "c"):
        PILImage.new("RGB", (32, 32)).save(tmp_path / "exported" / "data" / f"{name}.png")
    table = {"classes": ["cat", "dog"], "labels": {"a": 0, "b": 1, "c": None}}
    (tmp_path / "exported" / "labels.json").write_text(json.dumps(table))
    assert labels_of(read_dataset(tmp_path / "exported")) == [("cat", "a.png"), ("dog", "b.png")]
    (tmp_path / "exported" / "labels.json").write_text(json.dumps({**table, "labels": {"a": 7}}))
    with pytest.raises(SupportError, match="the class number 7, but has 2"):
        read_dataset(tmp_path / "exported")


# ---- data sets of the hub, by the package that reads them


@pytest.fixture
def own_datasets_cache(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    datasets.disable_progress_bars()
    return datasets


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
def test_a_data_set_is_read_by_the_package_that_the_hub_uses(own_datasets_cache, tmp_path, monkeypatch):
    write_pictures(tmp_path / "owner" / "name" / "train", COUNTS)
    monkeypatch.chdir(tmp_path)  # the package reads a folder of that name as it reads the hub's
    folder = read_dataset("hf://datasets/owner/name")
    assert folder.classes == ("blue", "red")
    assert folder.counts == (2, 3)
    assert len(Support.from_folder(folder)) == 5
    with pytest.raises(
        HubError, match=r"'owner/name' cannot be read: .* Check its name and the split 'test'"
    ):
        read_dataset("hf://datasets/owner/name", split="test")
