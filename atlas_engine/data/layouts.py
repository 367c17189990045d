"""Labelled images in the layouts that people have: split folders, tables, and exports of labelling tools.

    read_dataset("pets")                             # one folder per class, as `read_folder`; or pets.zip
    read_dataset("pets", split="test")               # pets/train/cat/1.jpg, pets/test/cat/7.jpg
    read_dataset("pets")                             # pets/metadata.csv: file_name,label
    read_dataset("labels.csv")                       # the same, as a file of any name
    read_dataset("project.json")                     # Label Studio's JSON or JSON-MIN export
    read_dataset("exported")                         # FiftyOne: exported/labels.json, exported/data/…
    read_dataset("hf://datasets/owner/name")         # a data set on the hub, by the package `datasets`

Every one becomes a `ClassFolder`. Files that a table names must be there, below the table's own folder.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from atlas_engine.data.folders import ClassFolder, LabelledFile, natural_key, read_folder, read_zip
from atlas_engine.data.formats import printable_name
from atlas_engine.data.hub_dataset import HUB_DATASET, read_hub_dataset
from atlas_engine.errors import SupportError

__all__ = ["SPLITS", "read_dataset"]

SPLITS = ("train", "test", "val", "valid", "validation", "dev")
TABLES = ("metadata.csv", "metadata.jsonl")  # beside the images, as the hub's image folders have them
FIFTYONE_TABLE, FIFTYONE_FOLDER = "labels.json", "data"
FILE_COLUMNS = ("file_name", "filename", "file", "path", "image")
LABEL_COLUMNS = ("label", "class", "category", "choice")
TABLE_ENDINGS = (".csv", ".jsonl", ".json")
MAX_TABLE_NBYTES = 256 << 20
LISTED = 3  # names in an error

Row = tuple[str, str]
"""The file of an image, as a table names it, and its class."""


def read_dataset(
    source: str | os.PathLike[str], *, split: str = "train", min_classes: int = 2
) -> ClassFolder:
    """The labelled image files of a folder, a table or a data set on the hub; `split` where it has some."""
    if Path(source).parts[:2] == Path(HUB_DATASET).parts:  # a Path has one slash where the address has two
        return read_hub_dataset("/".join(Path(source).parts[2:]), split=split)
    path = Path(source)
    if path.suffix.lower() == ".zip" and path.is_file():
        return read_zip(path, min_classes=min_classes)
    if path.is_file():
        return _from_rows(path.parent, path.name, _read_rows(path), min_classes=min_classes)
    folder = _split_folder(path, split)
    table = next((folder / name for name in TABLES if (folder / name).is_file()), None)
    if table is not None:
        return _from_rows(folder, folder.name, _read_rows(table), min_classes=min_classes)
    if (folder / FIFTYONE_TABLE).is_file() and (folder / FIFTYONE_FOLDER).is_dir():
        return _from_rows(folder, folder.name, _fiftyone_rows(folder), min_classes=min_classes)
    return read_folder(folder, min_classes=min_classes)


def _split_folder(folder: Path, split: str) -> Path:
    """The sub-folder of the split, where every sub-folder is one; else the folder itself.

    `train` may be a class too, beside `bus`: then the folders are classes.
    """
    if not folder.is_dir():
        return folder
    inner = [entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")]
    names = {entry.name.lower(): entry for entry in inner}
    holds_classes = any(below.is_dir() for entry in inner for below in entry.iterdir())
    holds_tables = any((entry / name).is_file() for entry in inner for name in TABLES)
    if not names or not set(names) <= set(SPLITS) or not (holds_classes or holds_tables):
        return folder
    if split not in names:
        raise SupportError(
            f"{printable_name(folder.name)}: has no split '{split}', but {', '.join(sorted(names))}. "
            "Name one of them."
        )
    return names[split]


# ---- tables


def _read_rows(table: Path) -> list[Row]:
    """The rows of a CSV, JSON lines or JSON file, or a `SupportError` that says what is needed."""
    name = printable_name(table.name)
    if table.suffix.lower() not in TABLE_ENDINGS:
        raise SupportError(
            f"{name}: is no table. Give a folder of images, a zip, or a .csv, .jsonl or .json file."
        )
    if table.stat().st_size > MAX_TABLE_NBYTES:
        raise SupportError(f"{name}: is larger than {MAX_TABLE_NBYTES >> 20} MiB. Give a smaller table.")
    try:
        if table.suffix.lower() == ".csv":
            with table.open(encoding="utf-8-sig", newline="") as file:
                return _labelled_rows(name, list(csv.DictReader(file)))
        text = table.read_text(encoding="utf-8-sig")
        if table.suffix.lower() == ".jsonl":
            return _labelled_rows(name, [json.loads(line) for line in text.splitlines() if line.strip()])
        return _label_studio_rows(name, json.loads(text))
    except (UnicodeDecodeError, csv.Error, json.JSONDecodeError) as error:
        raise SupportError(f"{name}: cannot be read as a table ({error}). Export it anew.") from None


def _labelled_rows(name: str, rows: Sequence[object]) -> list[Row]:
    """File and label of every row, by the usual names of those columns."""
    if not rows or not all(isinstance(row, dict) for row in rows):
        raise SupportError(f"{name}: has no rows. Write a line with file_name and label for each image.")
    first: Mapping[str, object] = rows[0]  # type: ignore[assignment]
    columns = {str(column).strip().casefold(): str(column) for column in first}
    file = next((columns[one] for one in FILE_COLUMNS if one in columns), None)
    label = next((columns[one] for one in LABEL_COLUMNS if one in columns), None)
    if file is None or label is None:
        raise SupportError(
            f"{name}: has the columns {', '.join(columns) or 'none'}, but file_name and label are needed. "
            "Rename the columns."
        )
    return [(_text(row.get(file)), _text(row.get(label))) for row in rows]  # type: ignore[attr-defined]


def _text(value: object) -> str:
    return "" if value is None else str(value).strip()


def _label_studio_rows(name: str, tasks: object) -> list[Row]:
    """File and choice of every task that was labelled, of the JSON and the JSON-MIN export."""
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise SupportError(f"{name}: is no list of tasks. Export the project as JSON or JSON-MIN.")
    rows = []
    for task in tasks:
        data = task["data"] if isinstance(task.get("data"), dict) else task
        image = next((data[column] for column in ("image", "img", "url") if column in data), None)
        choice = _choice_of(task)
        if image is not None and choice:
            rows.append((_local_name(str(image)), choice))
    if not rows:
        raise SupportError(
            f"{name}: has no task with an image and a choice. Label images with <Choices>, then export again."
        )
    return rows


def _choice_of(task: Mapping[str, Any]) -> str:
    """The class of a task: of the first annotation that was not cancelled, or of JSON-MIN's column."""
    for annotation in task.get("annotations") or ():
        if annotation.get("was_cancelled"):
            continue
        for result in annotation.get("result") or ():
            choices = (result.get("value") or {}).get("choices")
            if choices:
                return _text(choices[0])
    flat = task.get("choice")
    if isinstance(flat, dict):
        flat = (flat.get("choices") or [""])[0]
    return _text(flat)


def _local_name(address: str) -> str:
    """The path of a local file in Label Studio's addresses.

    >>> _local_name("/data/local-files/?d=cats/1.jpg"), _local_name("/data/upload/3/ab12-1.jpg")
    ('cats/1.jpg', 'ab12-1.jpg')
    """
    parts = urlsplit(address)
    asked = parse_qs(parts.query).get("d")
    if asked:
        return asked[0]
    path = unquote(parts.path)
    return PurePosixPath(path).name if parts.scheme or path.startswith("/data/") else path


def _fiftyone_rows(folder: Path) -> list[Row]:
    """File and label of FiftyOne's image classification export."""
    name = f"{printable_name(folder.name)}/{FIFTYONE_TABLE}"
    try:
        table = json.loads((folder / FIFTYONE_TABLE).read_text(encoding="utf-8"))
        classes, labels = table.get("classes"), dict(table["labels"])
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        raise SupportError(
            f"{name}: is not FiftyOne's table. Export with FiftyOneImageClassificationDataset."
        ) from None
    files = {path.stem: path.name for path in (folder / FIFTYONE_FOLDER).iterdir() if path.is_file()}
    rows = []
    for key, label in labels.items():
        value = label.get("label") if isinstance(label, dict) else label
        if isinstance(value, int) and isinstance(classes, list):
            if not 0 <= value < len(classes):
                raise SupportError(f"{name}: gives '{key}' the class number {value}, but has {len(classes)}.")
            value = classes[value]
        if value is not None:  # an image that nobody labelled
            rows.append((f"{FIFTYONE_FOLDER}/{files.get(key, key)}", _text(value)))
    return rows


# ---- from rows to classes


def _from_rows(root: Path, name: str, rows: Iterable[Row], *, min_classes: int) -> ClassFolder:
    """The labelled files that the rows name, all of which must be below `root`."""
    title, place = printable_name(name or root.resolve().name), root.resolve()
    found: list[tuple[str, Path, str]] = []
    missing: list[str] = []
    for file, label in rows:
        if not label:
            raise SupportError(
                f"{title}: gives '{printable_name(file)}' no label. Label it, or remove the row."
            )
        path = (root / file).resolve() if file else place
        if not path.is_relative_to(place):
            raise SupportError(
                f"{title}: names '{printable_name(file)}', which lies outside its folder. Move it below."
            )
        if path.is_file():
            found.append((label, path, file))
        else:
            missing.append(printable_name(file))
    if missing:
        listed = ", ".join(f"'{one}'" for one in missing[:LISTED])
        raise SupportError(
            f"{title}: names {len(missing)} file(s) that are not there, such as {listed}. Put them below "
            f"'{printable_name(root.resolve().name)}', or remove their rows."
        )
    classes = tuple(sorted({label for label, _, _ in found}, key=natural_key))
    if len(classes) < min_classes:
        raise SupportError(
            f"{title}: has {len(classes)} class(es), but at least {min_classes} are needed. Label more."
        )
    numbers = {label: number for number, label in enumerate(classes)}
    ordered = sorted(found, key=lambda one: (numbers[one[0]], natural_key(one[2])))
    items = tuple(
        LabelledFile(f"{label}/{Path(file).name}", numbers[label], path) for label, path, file in ordered
    )
    return ClassFolder(title, classes, items)
