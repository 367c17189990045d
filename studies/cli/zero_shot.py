"""`atlas eval zero-shot`: accuracy on folders of labelled images."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import add_folders, add_model, add_seed, positive
from atlas_engine.cli.command import Command
from atlas_engine.cli.output import add_json_file, emit, write_json
from atlas_engine.cli.progress import Progress
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from torch import Tensor

    from atlas_engine.data.image import Image
    from atlas_engine.engine import Atlas
    from studies.zero_shot import LogitsOf, ZeroShotRow

__all__ = ["ZERO_SHOT"]

BASELINE, OURS = "baseline", "zero-shot"


def arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, and what to measure on them."""
    add_folders(parser)
    add_model(parser)
    parser.add_argument("--templates", nargs="+", metavar="SET", help="template sets, or sentences with {}")
    parser.add_argument("--baseline", action="store_true", help="also measure the training-free baseline")
    parser.add_argument(
        "--max-classes", type=positive, metavar="N", help="at most N classes a folder, drawn by --seed"
    )
    parser.add_argument(
        "--max-test", type=positive, metavar="N", help="at most N images a folder, drawn by --seed"
    )
    add_seed(parser, "the draws")
    add_json_file(parser)


def run(args: argparse.Namespace) -> int:
    """Print a table, a row a folder and method; the last rows are means over folders."""
    from atlas_engine.cache import Cache
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.problems.draw import draw_classes, draw_images
    from studies.zero_shot import zero_shot

    folders = [
        draw_images(
            draw_classes(read_folder(path), args.max_classes, seed=args.seed), args.max_test, seed=args.seed
        )
        for path in args.folders
    ]
    with tempfile.TemporaryDirectory() as kept, open_atlas(args.model, cache=Cache(kept)) as engine:
        methods = _methods(engine, args.templates or [])
        if args.baseline:
            methods = {BASELINE: _baseline_logits(), **methods}
        rows: list[ZeroShotRow] = []
        with Progress(len(methods) * sum(len(folder.items) for folder in folders), "evaluating") as progress:
            for folder in folders:
                for method, logits_of in methods.items():
                    rows.append(zero_shot(folder, logits_of, method=method, on_images=progress.advance))
    if args.json:
        write_json(args.json, [row.as_dict() for row in rows])
    emit(_table(rows))
    return 0


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

    def logits_of(pictures: Sequence[Image], classes: tuple[str, ...]) -> Tensor:
        return cosines(to_batch(pictures, size=SIZE, mean=zeros, std=ones), classes)

    return logits_of


def _table(rows: Sequence[ZeroShotRow]) -> str:
    shown = [
        (row.dataset, row.method, 100 * row.accuracy, f"{100 * row.low:.1f}–{100 * row.high:.1f}", row.n_test)
        for row in rows
    ]
    for method in dict.fromkeys(row.method for row in rows):
        ours = [row for row in rows if row.method == method]
        mean = sum(row.accuracy for row in ours) / len(ours)
        shown.append(("mean", method, 100 * mean, "", sum(row.n_test for row in ours)))
    return table(shown, ("dataset", "method", "accuracy %", "95 % interval", "images"))


ZERO_SHOT = Command(
    arguments,
    run,
    examples=(
        "atlas eval zero-shot photos/pets photos/plants --json zero-shot.json",
        "atlas eval zero-shot photos/pets --model ViT-B-32/openai --max-classes 20",
    ),
)
