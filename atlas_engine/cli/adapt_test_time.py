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
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.cli.watching import watched
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.prediction import Comparison
    from atlas_engine.result import AdaptResult

__all__ = ["TEST_TIME"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Images, class names, where the recipe goes, and how to learn."""
    parser.add_argument(
        "images", nargs="+", metavar="IMAGE", help="JPEG, PNG or WEBP files, or folders of them"
    )
    parser.add_argument("--classes", required=True, metavar="A,B", help="class names, separated by commas")
    parser.add_argument("-o", "--output", metavar="R", type=Path, help="the recipe file to write")
    parser.add_argument(
        "--objective", default="auto", metavar="NAME", help="auto (default), anchored, ufm, entropy, …"
    )
    parser.add_argument(
        "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
    )
    parser.add_argument("--bank", metavar="FILE", type=Path, help="a bank file (default: the model's own)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of views and order (default 0)"
    )
    add_settings(parser, TestTimeConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict and both models' answers; Ctrl-C keeps the best so far."""
    from atlas_engine.atlas import open as open_atlas
    from atlas_engine.cli.predict import image_files

    config = settings_from(args, TestTimeConfig)
    classes = [name.strip() for name in args.classes.split(",") if name.strip()]
    files = image_files(args.images)
    with open_atlas(args.model, bank=args.bank) as engine:
        pictures = engine.pictures(files)
        work = engine.test_time(pictures, classes, objective=args.objective, config=config, seed=args.seed)
        result = watched(work)
        answers = engine.compare(pictures, result.recipe)
    if args.output:
        result.save(args.output)
    truth = _truth(files, answers.adapted.classes)
    emit_json(_facts(result, answers, truth)) if args.json else emit(
        _words(result, answers, truth, args.output)
    )
    return 0


def _truth(files: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """The class that each image's folder is named after, for the score alone; None for any other folder."""
    from atlas_engine.data.folders import pretty_name

    known = {name.casefold(): name for name in classes}
    return [known.get(pretty_name(path.parent.name).casefold()) for path in files]


def _scores(answers: Comparison, truth: Sequence[str | None]) -> dict[str, object]:
    """How many of the images whose class is known each model has right."""
    known = [row for row, name in enumerate(truth) if name is not None]

    def right(labels: Sequence[str]) -> int:
        return sum(labels[row] == truth[row] for row in known)

    return {
        "images": len(known),
        "zero_shot_right": right(answers.zero_shot.labels),
        "adapted_right": right(answers.adapted.labels),
    }


def _facts(result: AdaptResult, answers: Comparison, truth: Sequence[str | None]) -> dict[str, object]:
    verdict = result.verdict
    return {
        "method": verdict.kept,
        "helped": verdict.helped,
        "rolled_back": result.fell_back,
        "sentence": verdict.sentence,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "score": _scores(answers, truth),
        "zero_shot": answers.zero_shot.as_rows(),
        "adapted": answers.adapted.as_rows(),
    }


def _words(result: AdaptResult, answers: Comparison, truth: Sequence[str | None], output: Path | None) -> str:
    pairs = zip(answers.zero_shot.top(1), answers.adapted.top(1), answers.adapted.names, strict=True)
    rows = [
        (name, old.label, round(100 * old.prob, 1), new.label, round(100 * new.prob, 1))
        for ((old,), (new,), name) in pairs
    ]
    parts = [result.verdict.sentence, table(rows, ("image", "zero-shot", "%", "adapted", "%"))]
    score = _scores(answers, truth)
    if score["images"]:
        parts.append(
            f"by the names of their folders, which adapting never saw: of {score['images']} images zero-shot "
            f"has {score['zero_shot_right']} right, the adapted model {score['adapted_right']}."
        )
    if output:
        parts.append(f"recipe: {output}")
    return "\n\n".join(parts)


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
