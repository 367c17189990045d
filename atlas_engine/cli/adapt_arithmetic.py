"""`atlas adapt negate` and `atlas adapt add`: forget a set of classes, or one model for several sets.

Folders of labelled images in, a recipe out. Knows no formulas.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json, say
from atlas_engine.cli.watching import watched
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.data.support import Support
    from atlas_engine.result import AdaptResult

__all__ = ["ADD", "NEGATE"]


def negate_arguments(parser: argparse.ArgumentParser) -> None:
    """What to forget, what to keep, where the recipe goes, and how to learn."""
    parser.add_argument(
        "--target", metavar="DIR", type=Path, required=True, help="classes to forget, a sub-folder each"
    )
    parser.add_argument(
        "--control", metavar="DIR", type=Path, required=True, help="classes to keep, a sub-folder each"
    )
    parser.add_argument(
        "--vector", metavar="NAME", help="the target's own vector (default: by its name, or the likest)"
    )
    parser.add_argument(
        "--method", default="auto", metavar="NAME", help="auto (default), atlas or scalar: what may be kept"
    )
    _shared_arguments(parser)
    add_settings(parser, NegateConfig)


def negate(args: argparse.Namespace) -> int:
    """Print the verdict and the accuracies before and after; Ctrl-C keeps the best so far."""
    from atlas_engine.arithmetic.scene import vector_of
    from atlas_engine.atlas import open as open_atlas

    config = settings_from(args, NegateConfig)
    folder, target = _read(args.target, args)
    _, control = _read(args.control, args)
    with open_atlas(args.model, bank=args.bank) as engine:
        vector = args.vector or vector_of(engine.bank, folder.name)
        work = engine.negate(
            target, control, vector=vector, method=args.method, config=config, seed=args.seed
        )
        result = watched(work)
    return _tell(result, args)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The tasks, where the recipe goes, and how to learn."""
    parser.add_argument(
        "folders", metavar="DIR", nargs="+", type=Path, help="a task each, with one sub-folder a class"
    )
    parser.add_argument(
        "--method",
        default="auto",
        metavar="NAME",
        help="auto (default), atlas, scalar, uniform, or adamerging, which reads no labels",
    )
    _shared_arguments(parser)
    add_settings(parser, AddConfig)


def add(args: argparse.Namespace) -> int:
    """Print the verdict and the accuracy of every task; Ctrl-C keeps the best so far."""
    from atlas_engine.atlas import open as open_atlas

    config = settings_from(args, AddConfig)
    read = [_read(path, args) for path in args.folders]
    tasks = {folder.name: support for folder, support in read}
    if len(tasks) < len(read):
        from atlas_engine.study.few_shot import dataset_names

        names = dataset_names(args.folders)
        tasks = {name: support for name, (_, support) in zip(names, read, strict=True)}
    with open_atlas(args.model, bank=args.bank) as engine:
        result = watched(engine.add(tasks, method=args.method, config=config, seed=args.seed))
    return _tell(result, args)


def _shared_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="R", type=Path, help="the recipe file to write")
    parser.add_argument(
        "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
    )
    parser.add_argument("--bank", metavar="FILE", type=Path, help="a bank file (default: the model's own)")
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out images that cannot be read")
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of what is held out, views and order (default 0)",
    )
    add_json_flag(parser)


def _read(path: Path, args: argparse.Namespace) -> tuple[ClassFolder, Support]:
    from atlas_engine.data.folders import read_folder
    from atlas_engine.data.support import Support

    folder = read_folder(path)
    support, left_out = Support.read(folder, on_error="skip" if args.skip_unreadable else "raise")
    for sentence in (*map(str, left_out), *support.warnings()):
        say(sentence)
    return folder, support


def _tell(result: AdaptResult, args: argparse.Namespace) -> int:
    if args.output:
        result.save(args.output)
    emit_json(_facts(result)) if args.json else emit(_words(result, args.output))
    return 0


def _facts(result: AdaptResult) -> dict[str, object]:
    return {
        "method": result.verdict.kept,
        "helped": result.verdict.helped,
        "sentence": result.verdict.sentence,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "estimates": [
            {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
            for e in result.estimates
        ],
    }


def _words(result: AdaptResult, output: Path | None) -> str:
    rows: Sequence[tuple[object, ...]] = [
        (e.method, 100 * e.accuracy, 100 * e.low, 100 * e.high, e.images) for e in result.estimates
    ]
    parts = [result.verdict.sentence, table(rows, ("held out", "right %", "from", "to", "images"))]
    return "\n\n".join([*parts, f"recipe: {output}"] if output else parts)


NEGATE = Command(
    negate_arguments,
    negate,
    examples=(
        "atlas adapt negate --target faces --control everything_else -o forget.atlas.safetensors",
        "atlas adapt negate --target faces --control everything_else --keep 0.98 --json",
    ),
    about="Learns coefficients of the bank's task vectors that make the model fail on the target while the\n"
    "control keeps a share of its accuracy, on images held out of both. Where nothing can be forgotten\n"
    "within that bound, it says so and stays zero-shot.",
)
ADD = Command(
    add_arguments,
    add,
    examples=(
        "atlas adapt add photos/mnist photos/gtsrb photos/intel -o both.atlas.safetensors",
        "atlas adapt add photos/mnist photos/gtsrb --method scalar --json",
    ),
    about="Learns one set of coefficients for several tasks, each under its own class names. A task's own\n"
    "vector is found by its folder's name; where one is missing, the whole bank is mixed.",
)
