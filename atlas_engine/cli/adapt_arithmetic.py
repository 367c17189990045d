"""`atlas adapt negate` and `atlas adapt add`: forget a set of classes, or one model for several sets.

Folders of labelled images in, a recipe out. Knows no formulas.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.cli.arguments import add_bank, add_model, add_recipe_file, add_seed, add_skip_unreadable
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag
from atlas_engine.cli.results import estimate_facts, estimate_table, support_of, tell_result
from atlas_engine.cli.watching import watched

if TYPE_CHECKING:
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
    from atlas_engine.adapt.arithmetic.scene import vector_of
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas

    config, skip = settings_from(args, NegateConfig), args.skip_unreadable
    folder = read_folder(args.target)
    target = support_of(folder, skip_unreadable=skip)
    control = support_of(args.control, skip_unreadable=skip)
    with open_atlas(args.model, bank=args.bank) as engine:
        vector = args.vector or vector_of(engine.bank, folder.name)
        work = engine.negate(
            target, control, vector=vector, method=args.method, config=config, seed=args.seed
        )
        result = watched(work, output=args.output)
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
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from studies.problems.draw import dataset_names

    config = settings_from(args, AddConfig)
    folders = [read_folder(path) for path in args.folders]
    names = [folder.name for folder in folders]
    if len(set(names)) < len(names):
        names = dataset_names(args.folders)
    read = [support_of(folder, skip_unreadable=args.skip_unreadable) for folder in folders]
    with open_atlas(args.model, bank=args.bank) as engine:
        tasks = dict(zip(names, read, strict=True))
        work = engine.add(tasks, method=args.method, config=config, seed=args.seed)
        result = watched(work, output=args.output)
    return _tell(result, args)


def _shared_arguments(parser: argparse.ArgumentParser) -> None:
    add_recipe_file(parser)
    add_model(parser)
    add_bank(parser)
    add_skip_unreadable(parser)
    add_seed(parser, "what is held out, views and order")
    add_json_flag(parser)


def _tell(result: AdaptResult, args: argparse.Namespace) -> int:
    facts = {"estimates": estimate_facts(result)}
    return tell_result(result, args, facts=facts, parts=[estimate_table(result)])


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
