"""Labelled images of a data set on the hub, by the package `datasets`, which is an optional extra.

    read_hub_dataset("owner/name", split="train")

Images arrive as the bytes of their files and are decoded as any upload is. The data set's own code is never
run: `datasets` reads tables and archives only.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from atlas_engine.data.folders import ClassFolder, LabelledFile
from atlas_engine.data.formats import printable_name
from atlas_engine.errors import HubError, SupportError

__all__ = ["HUB_DATASET", "read_hub_dataset"]

HUB_DATASET = "hf://datasets/"
MAX_IMAGES = 100_000


def read_hub_dataset(name: str, *, split: str = "train") -> ClassFolder:
    """The labelled images of a split, by its first column of images and its first column of labels."""
    if importlib.util.find_spec("datasets") is None:
        raise SupportError(
            f"the data set '{name}' needs the Python package datasets. Run: pip install datasets"
        )
    import datasets

    try:
        table = datasets.load_dataset(name, split=split)
    except Exception as error:  # its errors share no base class: no such set, no such split, no network
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")
        raise HubError(
            f"the data set '{printable_name(name)}' cannot be read: {reason}. Check its name and the split "
            f"'{split}'; a private one needs `hf auth login`."
        ) from error
    images = next((key for key, kind in table.features.items() if isinstance(kind, datasets.Image)), None)
    labels = next(
        (key for key, kind in table.features.items() if isinstance(kind, datasets.ClassLabel)), None
    )
    if images is None or labels is None:
        raise SupportError(
            f"the data set '{printable_name(name)}' has the columns {', '.join(table.features)}, but one of "
            "images and one of class labels are needed. Choose another."
        )
    if len(table) > MAX_IMAGES:
        raise SupportError(
            f"the split '{split}' has {len(table)} images, but at most {MAX_IMAGES} are taken. Name a part "
            f"of it, such as '{split}[:1000]'."
        )
    rows = table.cast_column(images, datasets.Image(decode=False))
    classes = tuple(table.features[labels].names)
    items = [_labelled_file(place, row, images, labels, classes) for place, row in enumerate(rows)]
    used = sorted({item.label for item in items})
    # classes without an image in this split are left out
    numbers = {label: number for number, label in enumerate(used)}
    kept = sorted(items, key=lambda item: item.label)
    return ClassFolder(
        printable_name(name),
        tuple(classes[label] for label in used),
        tuple(LabelledFile(item.name, numbers[item.label], item.source) for item in kept),
    )


def _labelled_file(
    place: int, row: dict[str, Any], images: str, labels: str, classes: tuple[str, ...]
) -> LabelledFile:
    """One row as a labelled file: the bytes of its image where the table holds them, else its path."""
    image, label = row[images], int(row[labels])
    if not 0 <= label < len(classes):
        raise SupportError(f"image {place} has no label. Choose a split whose images are labelled.")
    source = image["bytes"] if image.get("bytes") is not None else Path(image["path"])
    return LabelledFile(f"{classes[label]}/{place}", label, source)
