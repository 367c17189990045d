"""`atlas model align|compare`: how the bundled model was made, and why on that tower."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import add_folders, positive
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_file, add_json_flag, emit, emit_json, writable, write_json
from atlas_engine.cli.progress import Progress
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from torch import Tensor

    from atlas_engine.data.folders import ImageFile
    from studies.bundled_model.batches import AlignmentData
    from studies.bundled_model.compare import ComparisonSet, TowerScore

__all__ = ["ALIGN", "COMPARE"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, weights, where to work; and the settings of the training."""
    from studies.bundled_model.finish import FinishSettings
    from studies.bundled_model.train import AlignSettings

    parser.add_argument(
        "--labelled", nargs="*", default=[], type=Path, metavar="DIR", help="classes of ImageNet"
    )
    parser.add_argument(
        "--unlabelled", nargs="*", default=[], type=Path, metavar="DIR", help="any other images"
    )
    parser.add_argument(
        "--named", nargs="+", required=True, type=Path, metavar="DIR", help="pictures in folders of any names"
    )
    parser.add_argument(
        "--per-folder", type=positive, default=3000, metavar="N", help="most images of an unlabelled DIR"
    )
    parser.add_argument(
        "--work", type=Path, required=True, metavar="DIR", help="where state and log are kept"
    )
    parser.add_argument(
        "-o", "--output", type=writable, metavar="FILE", help="weights to write (default: assets/model)"
    )
    add_settings(parser, AlignSettings)
    add_settings(parser, FinishSettings)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Train, or go on with a training that was stopped; then write the weights and their manifest."""
    from atlas_engine.clip import bundled
    from studies.bundled_model.finish import FinishSettings, export, finish
    from studies.bundled_model.train import AlignSettings, align
    from studies.bundled_model.words import embed_words

    settings, last = settings_from(args, AlignSettings), settings_from(args, FinishSettings)
    _make_folder(args.work)
    lesson, names = _lesson(args, settings.seed)
    words = embed_words(names)
    with Progress(settings.steps, "aligning") as progress:
        for step in align(lesson, words, args.work, settings):
            told = f"words {step.words:.3f}, names {step.names:.3f}, keep {step.keep:.3f}"
            progress.advance(step.index - progress.done, told)
    finish(lesson, words, args.work, last, tau=settings.tau)
    output = args.output or bundled.weights_path()
    written = export(
        args.work, output, settings=(settings, last), images=len(lesson.labels), named=len(lesson.names)
    )
    emit_json(written) if args.json else emit(f"{written['file']}  sha256 {written['sha256']}")
    return 0


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MisuseError(f"--work: cannot make the folder {path} ({error.strerror}).") from error


def compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Folders to measure on, and what the regression learns from."""
    add_folders(parser)
    parser.add_argument("--teach", type=Path, required=True, metavar="DIR", help="images for the regression")
    parser.add_argument(
        "--tinyvit", type=Path, required=True, metavar="WHEEL", help="the package with TinyViT-5M"
    )
    parser.add_argument(
        "--max-classes", type=positive, default=20, metavar="N", help="classes a folder (default 20)"
    )
    parser.add_argument(
        "--per-class", type=positive, default=10, metavar="N", help="images a class (default 10)"
    )
    parser.add_argument(
        "--teach-images", type=positive, default=1500, metavar="N", help="images to learn from (1500)"
    )
    add_json_file(parser)


def run_compare(args: argparse.Namespace) -> int:
    """Print the means over folders, a row a tower and size; `--json` has every row."""
    from dataclasses import asdict

    from studies.bundled_model.compare import CANDIDATES, compare

    sheets = [_sheet(path, args.max_classes, args.per_class) for path in args.folders]
    scores: list[TowerScore] = []
    with Progress(len(CANDIDATES) * len(sheets), "comparing") as progress:
        for score in compare(sheets, _photos(args.teach, args.teach_images), args.tinyvit):
            scores.append(score)
            progress.advance()
    if args.json:
        write_json(args.json, [asdict(score) for score in scores])
    rows = [_mean([s for s in scores if (s.tower, s.size) == candidate]) for candidate in CANDIDATES]
    emit(table(rows, ("tower", "px", "zero-shot %", "1 shot %", "4 shots %", "images/s")))
    return 0


def _mean(scores: list[TowerScore]) -> tuple[object, ...]:
    names = ("zero_shot", "one_shot", "four_shot")
    means = [100 * sum(getattr(score, name) for score in scores) / len(scores) for name in names]
    return scores[0].tower, scores[0].size, *means, statistics.median(s.images_per_second for s in scores)


def _sheet(path: Path, most: int, per_class: int) -> ComparisonSet:
    import torch

    from atlas_engine.data.folders import ImageFile, read_folder
    from atlas_engine.runtime import generator
    from studies.bundled_model.compare import ComparisonSet
    from studies.problems.draw import draw_classes

    folder = draw_classes(read_folder(path), most)
    kept: list[tuple[ImageFile, int]] = []
    for label in range(len(folder.classes)):
        items = [item for item in folder.items if item.label == label]
        order = torch.randperm(len(items), generator=generator(label)).tolist()[:per_class]
        kept += [(ImageFile(items[index].name, items[index].source), label) for index in order]
    labels = torch.tensor([label for _, label in kept])
    return ComparisonSet(folder.name, _squares([photo for photo, _ in kept]), labels, folder.pretty)


def _photos(path: Path, most: int) -> Tensor:
    import torch

    from atlas_engine.data.folders import read_images_in
    from atlas_engine.runtime import generator

    photos = read_images_in(path).items
    return _squares([photos[i] for i in torch.randperm(len(photos), generator=generator(0)).tolist()[:most]])


def _squares(photos: Sequence[ImageFile]) -> Tensor:
    """The photos as uint8 squares (N 3 S S) of the bundled model's size."""
    import torch

    from atlas_engine.clip import bundled
    from atlas_engine.data.folders import read_labelled_files
    from atlas_engine.data.preprocess import to_pixels

    squares = torch.empty(len(photos), 3, bundled.SIZE, bundled.SIZE, dtype=torch.uint8)
    with Progress(len(photos), "reading") as progress:
        for index, photo in enumerate(photos):
            ((_, picture),), _ = read_labelled_files([photo], isolated=False)
            squares[index] = to_pixels(picture, bundled.SIZE, resize="shortest", interpolation="bicubic")
            progress.advance()
    return squares


def _lesson(args: argparse.Namespace, seed: int) -> tuple[AlignmentData, tuple[str, ...]]:
    """Everything in memory, and the names that named pictures count into."""
    import torch

    from atlas_engine import runtime
    from atlas_engine.data.folders import ImageFile, read_folder, read_images_in
    from studies.bundled_model.batches import UNKNOWN, AlignmentData, imagenet_labels

    chosen: list[tuple[ImageFile, int]] = []
    for path in args.labelled:
        folder = read_folder(path)
        concepts = imagenet_labels(folder.pretty)
        chosen += [(ImageFile(item.name, item.source), concepts[item.label]) for item in folder.items]
    for path in args.unlabelled:
        photos = read_images_in(path).items
        order = torch.randperm(len(photos), generator=runtime.generator(seed)).tolist()
        chosen += [(photos[index], UNKNOWN) for index in sorted(order[: args.per_folder])]
    named = [(folder, 1 / len(folder.items) ** 0.5) for folder in map(read_folder, args.named)]
    names = tuple(dict.fromkeys(name for folder, _ in named for name in folder.pretty))
    place = {name: index for index, name in enumerate(names)}
    lesson = AlignmentData(
        pixels=_squares([photo for photo, _ in chosen]),
        labels=torch.tensor([label for _, label in chosen]),
        named=_squares([ImageFile(item.name, item.source) for folder, _ in named for item in folder.items]),
        names=torch.tensor([place[folder.pretty[i.label]] for folder, _ in named for i in folder.items]),
        weights=torch.tensor([weight for folder, weight in named for _ in folder.items]),
    )
    return lesson, names


ALIGN = Command(
    arguments,
    run,
    examples=(
        "atlas model align --labelled tinyin --unlabelled food101 dogs --named doodles --work runs/a",
        "atlas model align --labelled tinyin --named emoji --work runs/b --steps 50 -o b.safetensors",
    ),
    about="A run that was stopped goes on where it was. The recorded run is in assets/model.",
)

COMPARE = Command(
    compare_arguments,
    run_compare,
    examples=(
        "atlas model compare photos/pets photos/food --teach photos/misc --tinyvit w.whl",
        "atlas model compare photos/pets --teach photos/misc --tinyvit w.whl --json towers.json",
    ),
    about="Frozen features of both towers at three sizes: zero-shot, 1 and 4 shots, and speed.",
)
