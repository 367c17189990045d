"""`atlas adapt test-time`: images without labels and class names in, a recipe out. Knows no formulas.

Where the images lie in folders named after the classes, those names are compared with the answers when all
is over. They go nowhere else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.cli.arguments import add_bank, add_model, add_recipe_file, add_seed, word_list
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.cli.progress import Progress
from atlas_engine.cli.results import answer_table, tell_result
from atlas_engine.cli.watching import watched

if TYPE_CHECKING:
    from atlas_engine.data.image import Image
    from atlas_engine.engine import Atlas
    from atlas_engine.predictions import Comparison
    from atlas_engine.result import AdaptResult

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
        "--objective",
        default="auto",
        metavar="NAME",
        help="auto (default), ufm, entropy, sar, simclr, …; ln-ufm, … for baselines that tune norm layers",
    )
    parser.add_argument(
        "--online",
        action="store_true",
        help="answer each image when it arrives, in the order given, by those before it and itself",
    )
    add_model(parser)
    add_bank(parser)
    add_seed(parser, "views and order")
    add_settings(parser, TestTimeConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and both models' answers; Ctrl-C keeps the best so far."""
    from atlas_engine.adapt.methods import NORM_BASELINES
    from atlas_engine.cli.predict import image_files
    from atlas_engine.engine import open as open_atlas

    config = settings_from(args, TestTimeConfig)
    files = image_files(args.images)
    baseline = args.objective in NORM_BASELINES
    if baseline and (args.output or args.online):
        raise MisuseError(
            f"{args.objective} tunes norm layers, which no recipe can hold: it only answers, without -o and "
            f"--online. For a recipe choose --objective {args.objective.removeprefix('ln-')}."
        )
    with open_atlas(args.model, bank=args.bank) as engine:
        pictures = engine.read_images(files)
        if baseline:
            return _tell_baseline(engine, pictures, files, args, config)
        if args.online:
            result, answers = _online(engine, pictures, args, config)
        else:
            work = engine.test_time(
                pictures, args.classes, objective=args.objective, config=config, seed=args.seed
            )
            result = watched(work, output=args.output)
            answers = engine.compare(pictures, result.recipe)
    facts, parts = _told(answers, files)
    return tell_result(result, args, facts={"rolled_back": result.fell_back, **facts}, parts=parts)


def _online(
    engine: Atlas, pictures: Sequence[Image], args: argparse.Namespace, config: TestTimeConfig
) -> tuple[AdaptResult, Comparison]:
    """What the stream goes by in the end, and what it answered when each picture arrived."""
    from atlas_engine.predictions import Comparison, join_predictions

    stream = engine.stream(args.classes, objective=args.objective, learning=config, seed=args.seed)
    with Progress(len(pictures), "answering as they arrive") as progress:
        told = []
        for picture in pictures:
            told.append(stream.answer(picture))
            progress.advance(1, picture.name)
    if args.output is not None:
        stream.result().save(args.output)
    return stream.result(), Comparison(engine.predict(pictures, args.classes), join_predictions(told))


def _tell_baseline(
    engine: Atlas,
    pictures: Sequence[Image],
    files: Sequence[Path],
    args: argparse.Namespace,
    config: TestTimeConfig,
) -> int:
    """A baseline's answers beside zero-shot's: there is no recipe."""
    from atlas_engine.predictions import Comparison, predictions_from_logits

    run = engine.test_time_norms(pictures, args.classes, method=args.objective, config=config, seed=args.seed)
    answer, before = run.result(), engine.predict(pictures, args.classes)
    answers = Comparison(before, predictions_from_logits(before.names, before.classes, answer.logits))
    facts, parts = _told(answers, files)
    sentence = f"{args.objective}, a baseline: {answer.reason}"
    if args.json:
        emit_json({"method": args.objective, "sentence": sentence, "seconds": answer.seconds, **facts})
    else:
        emit("\n\n".join([sentence, *parts]))
    return 0


def _told(answers: Comparison, files: Sequence[Path]) -> tuple[dict[str, object], list[str]]:
    """Both models' answers and their score, as plain JSON types and as words."""
    score = _scores(answers, _truth(files, answers.adapted.classes))
    facts: dict[str, object] = {
        "score": score,
        "zero_shot": answers.zero_shot.as_rows(),
        "adapted": answers.adapted.as_rows(),
    }
    told = (
        f"by the names of their folders, which adapting never saw: of {score['images']} images zero-shot "
        f"has {score['zero_shot_right']} right, the adapted model {score['adapted_right']}."
    )
    return facts, [answer_table(answers), *([told] if score["images"] else [])]


def _truth(files: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """The class that each image's folder is named after, for the score alone; None for any other folder."""
    from atlas_engine.data.folders import display_name

    known = {name.casefold(): name for name in classes}
    return [known.get(display_name(path.parent.name).casefold()) for path in files]


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
        'atlas adapt test-time *.jpg --classes "cat,dog" --objective ufm --online --json',
    ),
    about="Learns from images alone what their kind looks like: no labels, only the names of the classes\n"
    "that may be among them. Where a check says that it does not help, it stays zero-shot and tells why.",
)
