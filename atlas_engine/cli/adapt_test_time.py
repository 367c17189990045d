"""`atlas adapt test-time`: images without labels and class names in, a recipe out. Knows no formulas.

Where the images lie in folders named after the classes, those names are compared with the answers when all
is over. They go nowhere else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.adapt.test_time import TestTimeConfig
from atlas_engine.cli.arguments import add_bank, add_model, add_recipe_file, add_seed, word_list
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag
from atlas_engine.cli.results import answer_table, tell_result
from atlas_engine.cli.watching import watched

if TYPE_CHECKING:
    from atlas_engine.prediction import Comparison

__all__ = ["TEST_TIME"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Images, class names, where the recipe goes, and how to learn."""
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="JPEG, PNG or WEBP files, or folders of them"
    )
    parser.add_argument(
        "--classes", type=word_list, required=True, metavar="A,B", help="class names, separated by commas"
    )
    add_recipe_file(parser)
    parser.add_argument(
        "--objective", default="auto", metavar="NAME", help="auto (default), anchored, ufm, entropy, …"
    )
    add_model(parser)
    add_bank(parser)
    add_seed(parser, "views and order")
    add_settings(parser, TestTimeConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and both models' answers; Ctrl-C keeps the best so far."""
    from atlas_engine.atlas import open as open_atlas
    from atlas_engine.cli.predict import image_files

    config = settings_from(args, TestTimeConfig)
    files = image_files(args.images)
    with open_atlas(args.model, bank=args.bank) as engine:
        pictures = engine.pictures(files)
        work = engine.test_time(
            pictures, args.classes, objective=args.objective, config=config, seed=args.seed
        )
        result = watched(work, output=args.output)
        answers = engine.compare(pictures, result.recipe)
    score = _scores(answers, _truth(files, answers.adapted.classes))
    facts = {
        "rolled_back": result.fell_back,
        "score": score,
        "zero_shot": answers.zero_shot.as_rows(),
        "adapted": answers.adapted.as_rows(),
    }
    told = (
        f"by the names of their folders, which adapting never saw: of {score['images']} images zero-shot "
        f"has {score['zero_shot_right']} right, the adapted model {score['adapted_right']}."
    )
    parts = [answer_table(answers), *([told] if score["images"] else [])]
    return tell_result(result, args, facts=facts, parts=parts)


def _truth(files: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """The class that each image's folder is named after, for the score alone; None for any other folder."""
    from atlas_engine.data.folders import pretty_name

    known = {name.casefold(): name for name in classes}
    return [known.get(pretty_name(path.parent.name).casefold()) for path in files]


def _scores(answers: Comparison, truth: Sequence[str | None]) -> dict[str, int]:
    """How many of the images whose class is known each model has right."""
    known = [row for row, name in enumerate(truth) if name is not None]

    def right(labels: Sequence[str]) -> int:
        return sum(labels[row] == truth[row] for row in known)

    return {
        "images": len(known),
        "zero_shot_right": right(answers.zero_shot.labels),
        "adapted_right": right(answers.adapted.labels),
    }


TEST_TIME = Command(
    arguments,
    run,
    examples=(
        'atlas adapt test-time camera_roll --classes "otter,seal,walrus" -o mine.atlas.safetensors',
        'atlas adapt test-time *.jpg --classes "cat,dog" --objective ufm --json',
    ),
    about="Learns from images alone what their kind looks like: no labels, only the names of the classes\n"
    "that may be among them. Where a check says that it does not help, it stays zero-shot and tells why.",
)
