"""`atlas eval exports`: exported ONNX files beside the library, on images that they were not adapted to."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    bank_option,
    command,
    distinct_names,
    folders_argument,
    json_file_option,
    model_option,
    positive,
    seed_option,
)
from atlas_engine.cli.output import emit, write_json
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder, LabelledFile
    from atlas_engine.data.image import Image
    from atlas_engine.data.support import Support
    from studies.exports import ExportRow

__all__ = ["exports"]


@command(
    "atlas eval exports photos/pets photos/plants --json exports.json",
    "atlas eval exports photos/pets --method auto --max-test 100",
)
@folders_argument()
@model_option
@bank_option()
@click.option("--method", default="text-probe", metavar="NAME", help="how it is adapted (default text-probe)")
@click.option("--shots", type=positive, default=4, metavar="N", help="images a class to adapt to (default 4)")
@click.option("--max-classes", type=positive, metavar="N", help="at most N classes a folder, drawn by --seed")
@click.option("--max-test", type=positive, default=200, metavar="N", help="images to answer (default 200)")
@seed_option("the draws")
@json_file_option
def exports(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    method: str,
    shots: int,
    max_classes: int | None,
    max_test: int,
    seed: int,
    json_file: Path | None,
) -> None:
    """Compare exported ONNX files with the library.

    A row a folder and precision: the share of images with the same likeliest class, and the largest
    difference of a probability.
    """
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.exports import measure_exports
    from studies.problems.draw import draw_classes

    rows: list[ExportRow] = []
    names = distinct_names(folders)
    with (
        open_atlas(model, bank=bank, cache=False) as engine,
        ProgressBar(len(folders), "evaluating") as progress,
    ):
        for name, path in zip(names, folders, strict=True):
            folder = draw_classes(read_folder(path), max_classes, seed=seed)
            support, images, labels = _split(folder, shots=shots, most=max_test, seed=seed)
            rows += measure_exports(engine, support, images, labels, dataset=name, method=method, seed=seed)
            progress.advance(note=name)
    if json_file:
        write_json(json_file, [row.as_dict() for row in rows])
    emit(_table(rows))


def _split(
    folder: ClassFolder, *, shots: int, most: int, seed: int
) -> tuple[Support, list[Image], list[int]]:
    """`shots` images of each class to adapt to, and at most `most` of the others with their labels."""
    from atlas_engine.data.folders import read_labelled_files
    from atlas_engine.data.support import Support

    draw = random.Random(seed)
    items = draw.sample(folder.items, len(folder.items))
    taken: dict[int, int] = {}
    learn: list[LabelledFile] = []
    rest: list[LabelledFile] = []
    for item in items:
        taken[item.label] = taken.get(item.label, 0) + 1
        (learn if taken[item.label] <= shots else rest).append(item)
    read, _ = read_labelled_files(learn, isolated=False)
    support = Support(
        tuple(image for _, image in read), tuple(item.label for item, _ in read), folder.display_names
    )
    tested, _ = read_labelled_files(rest[:most], isolated=False)
    return support, [image for _, image in tested], [item.label for item, _ in tested]


def _table(rows: list[ExportRow]) -> str:
    shown: list[tuple[object, ...]] = [
        (
            row.dataset,
            row.precision,
            row.images,
            100 * row.same_answers,
            f"{row.largest_difference:.1e}",
            100 * row.accuracy,
            100 * row.accuracy_torch,
            f"{row.nbytes / 1e6:.1f}",
            row.milliseconds,
        )
        for row in rows
    ]
    for precision in dict.fromkeys(row.precision for row in rows):
        own = [row for row in rows if row.precision == precision]
        images = sum(row.images for row in own)
        same = sum(row.same_answers * row.images for row in own) / images
        largest = max(row.largest_difference for row in own)
        shown.append(("all", precision, images, 100 * same, f"{largest:.1e}", "", "", "", ""))
    header = (
        "dataset",
        "precision",
        "images",
        "same answer %",
        "largest Δp",
        "right %",
        "torch %",
        "MB",
        "ms",
    )
    return table(shown, header)
