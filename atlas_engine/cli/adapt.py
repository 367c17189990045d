"""`atlas adapt few-shot`: a folder of a few labelled images in, a recipe out. Knows no formulas."""

from __future__ import annotations

import argparse
from pathlib import Path

from atlas_engine.adapt.few_shot import FewShotConfig
from atlas_engine.cli.arguments import add_bank, add_model, add_recipe_file, add_seed, add_skip_unreadable
from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag
from atlas_engine.cli.results import answer_table, estimate_facts, estimate_table, support_of, tell_result
from atlas_engine.cli.watching import watched

__all__ = ["FEW_SHOT"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """A folder of classes, where the recipe goes, and how to learn."""
    parser.add_argument("folder", metavar="DIR", type=Path, help="one sub-folder a class, or a zip of them")
    add_recipe_file(parser)
    parser.add_argument("--query", nargs="+", metavar="IMAGE", help="images to compare both models on")
    parser.add_argument("--method", default="auto", metavar="NAME", help="auto (default), atlas+lpp, tip, …")
    add_model(parser)
    add_bank(parser)
    add_skip_unreadable(parser)
    add_seed(parser, "views and order")
    add_settings(parser, FewShotConfig)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Print the verdict, the estimates and the answers for the query images; Ctrl-C keeps the best so far."""
    from atlas_engine.cli.predict import image_files
    from atlas_engine.engine import open as open_atlas

    config = settings_from(args, FewShotConfig)
    support = support_of(args.folder, skip_unreadable=args.skip_unreadable)
    with open_atlas(args.model, bank=args.bank) as engine:
        asked = engine.read_images(image_files(args.query)) if args.query else []
        work = engine.few_shot(support, method=args.method, config=config, seed=args.seed)
        result = watched(work, output=args.output)
        answers = engine.compare(asked, result.recipe) if asked else None
    facts = {
        "estimates": estimate_facts(result),
        "zero_shot": [] if answers is None else answers.zero_shot.as_rows(),
        "adapted": [] if answers is None else answers.adapted.as_rows(),
    }
    parts = [estimate_table(result)] if result.estimates else []
    parts += [] if answers is None else [answer_table(answers)]
    return tell_result(result, args, facts=facts, parts=parts)


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
