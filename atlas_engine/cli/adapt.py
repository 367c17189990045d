"""`atlas adapt few-shot`: a folder of a few labelled images in, a recipe out. Knows no formulas."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json, say
from atlas_engine.cli.watching import watched
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.data.support import Support
    from atlas_engine.prediction import Comparison
    from atlas_engine.result import AdaptResult

__all__ = ["FEW_SHOT"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """A folder of classes, where the recipe goes, and how to learn."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="one sub-folder a class, or a zip of them")
    parser.add_argument("-o", "--output", metavar="R", type=Path, help="the recipe file to write")
    parser.add_argument("--query", nargs="+", metavar="IMAGE", help="images to compare both models on")
    parser.add_argument("--method", default="auto", metavar="NAME", help="auto (default), atlas+lpp, tip, …")
    parser.add_argument(
        "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
    )
    parser.add_argument("--bank", metavar="FILE", type=Path, help="a bank file (default: the model's own)")
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out images that cannot be read")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of views and order (default 0)"
    )
    add_settings(parser, FewShotConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict, the estimates and the answers for the query images; Ctrl-C keeps the best so far."""
    from atlas_engine.atlas import open as open_atlas
    from atlas_engine.cli.predict import image_files

    config = settings_from(args, FewShotConfig)
    support = _support(args)
    with open_atlas(args.model, bank=args.bank) as engine:
        work = engine.few_shot(support, method=args.method, config=config, seed=args.seed)
        result = watched(work)
        queries = engine.compare(image_files(args.query), result.recipe) if args.query else None
    if args.output:
        result.save(args.output)
    emit_json(_facts(result, queries)) if args.json else emit(_words(result, queries, args.output))
    return 0


def _support(args: argparse.Namespace) -> Support:
    from atlas_engine.data.support import Support

    support, left_out = Support.read(args.folder, on_error="skip" if args.skip_unreadable else "raise")
    for sentence in (*map(str, left_out), *support.warnings()):
        say(sentence)
    return support


def _facts(result: AdaptResult, queries: Comparison | None) -> dict[str, object]:
    verdict = result.verdict
    return {
        "method": verdict.kept,
        "helped": verdict.helped,
        "sentence": verdict.sentence,
        "outcome": result.outcome.value,
        "seconds": result.seconds,
        "estimates": [
            {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
            for e in result.estimates
        ],
        "zero_shot": [] if queries is None else queries.zero_shot.as_rows(),
        "adapted": [] if queries is None else queries.adapted.as_rows(),
    }


def _words(result: AdaptResult, queries: Comparison | None, output: Path | None) -> str:
    parts = [result.verdict.sentence]
    if result.estimates:
        rows = [(e.method, 100 * e.accuracy, 100 * e.low, 100 * e.high, e.images) for e in result.estimates]
        parts.append(table(rows, ("held out", "right %", "from", "to", "images")))
    if queries is not None:
        pairs = zip(queries.zero_shot.as_rows(1), queries.adapted.as_rows(1), strict=True)
        answers = [
            (old["image"], old["label"], _percent(old["prob"]), new["label"], _percent(new["prob"]))
            for old, new in pairs
        ]
        parts.append(table(answers, ("image", "zero-shot", "%", "adapted", "%")))
    if output:
        parts.append(f"recipe: {output}")
    return "\n\n".join(parts)


def _percent(share: object) -> float:
    assert isinstance(share, float)
    return round(100 * share, 1)


FEW_SHOT = Command(
    arguments,
    run,
    examples=(
        "atlas adapt few-shot my_photos -o mine.atlas.safetensors",
        "atlas adapt few-shot my_photos.zip --query new/*.jpg --json",
    ),
    about="Learns how to mix the bank's task vectors, and a head beside them, from a few images of each\n"
    "class. Images are held out in turn to see whether that helps; where it does not, it stays zero-shot.",
)
