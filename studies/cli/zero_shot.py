"""`atlas eval zero-shot`: accuracy on folders of labelled images."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    SeveralValues,
    command,
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
    from torch import Tensor

    from atlas_engine.data.image import Image
    from atlas_engine.engine import Atlas
    from studies.zero_shot import LogitsOf, ZeroShotRow

__all__ = ["zero_shot"]

BASELINE, OURS = "baseline", "zero-shot"


@command(
    "atlas eval zero-shot photos/pets photos/plants --json zero-shot.json",
    "atlas eval zero-shot photos/pets --model ViT-B-32/openai --max-classes 20",
)
@folders_argument()
@model_option
@click.option(
    "--templates", cls=SeveralValues, multiple=True, metavar="SET...",
    help="template sets, or sentences with {}",
)  # fmt: skip
@click.option("--baseline", is_flag=True, help="also measure the training-free baseline")
@click.option("--max-classes", type=positive, metavar="N", help="at most N classes a folder, drawn by --seed")
@click.option("--max-test", type=positive, metavar="N", help="at most N images a folder, drawn by --seed")
@seed_option("the draws")
@json_file_option
def zero_shot(
    *,
    folders: tuple[Path, ...],
    model: str,
    templates: tuple[str, ...],
    baseline: bool,
    max_classes: int | None,
    max_test: int | None,
    seed: int,
    json_file: Path | None,
) -> None:
    """Accuracy without adaptation, on labelled folders.

    Prints a row a folder and method; the last rows are means over folders.
    """
    from atlas_engine.cache import Cache
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.problems.draw import draw_classes, draw_images
    from studies.zero_shot import zero_shot as measure

    drawn = [
        draw_images(draw_classes(read_folder(path), max_classes, seed=seed), max_test, seed=seed)
        for path in folders
    ]
    with tempfile.TemporaryDirectory() as kept, open_atlas(model, cache=Cache(kept)) as engine:
        methods = _methods(engine, templates)
        if baseline:
            methods = {BASELINE: _baseline_logits(), **methods}
        rows: list[ZeroShotRow] = []
        with ProgressBar(len(methods) * sum(len(folder.items) for folder in drawn), "evaluating") as progress:
            for folder in drawn:
                for method, logits_of in methods.items():
                    rows.append(measure(folder, logits_of, method=method, on_images=progress.advance))
    if json_file:
        write_json(json_file, [row.as_dict() for row in rows])
    emit(_table(rows))


def _methods(engine: Atlas, templates: Sequence[str]) -> dict[str, LogitsOf]:
    """The engine under its own templates, or once under each of several; the features are computed once."""
    from studies.zero_shot import engine_logits

    if len(templates) <= 1:
        return {OURS: engine_logits(engine, templates=templates[0] if templates else None)}
    return {f"{OURS}, {name}": engine_logits(engine, templates=name) for name in templates}


def _baseline_logits() -> LogitsOf:
    from atlas_engine.data.preprocess import to_batch
    from studies.bundled_model.baseline import SIZE, baseline

    cosines = baseline()
    zeros, ones = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)

    def logits_of(images: Sequence[Image], classes: tuple[str, ...]) -> Tensor:
        return cosines(to_batch(images, size=SIZE, mean=zeros, std=ones), classes)

    return logits_of


def _table(rows: Sequence[ZeroShotRow]) -> str:
    shown = [
        (row.dataset, row.method, 100 * row.accuracy, f"{100 * row.low:.1f}–{100 * row.high:.1f}", row.n_test)
        for row in rows
    ]
    for method in dict.fromkeys(row.method for row in rows):
        own = [row for row in rows if row.method == method]
        mean = sum(row.accuracy for row in own) / len(own)
        shown.append(("mean", method, 100 * mean, "", sum(row.n_test for row in own)))
    return table(shown, ("dataset", "method", "accuracy %", "95 % interval", "images"))
