"""`atlas adapt few-shot|negate|add`: folders of labelled images in, a recipe out.

`test-time`, which learns without labels, is in `adapt_unlabelled`; how a result is printed they share.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.adapt.arithmetic.addition import ADDITIONS
from atlas_engine.adapt.arithmetic.config import AddConfig, NegateConfig
from atlas_engine.adapt.arithmetic.negation import NEGATIONS
from atlas_engine.adapt.few_shot import FewShotConfig, FewShotResources
from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.cli.options import (
    PATH,
    SeveralValues,
    all_of,
    bank_option,
    command,
    distinct_names,
    json_flag,
    method_option,
    model_option,
    recipe_option,
    seed_option,
    settings,
    skip_unreadable_option,
    templates_option,
)
from atlas_engine.cli.output import emit, emit_json, say
from atlas_engine.cli.predict import image_files
from atlas_engine.cli.progress import run_with_progress
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.data.support import Support
    from atlas_engine.predictions import Comparison
    from atlas_engine.result import AdaptResult

__all__ = ["add", "comparison_table", "few_shot", "negate", "print_result", "read_support"]

arithmetic_options = all_of(
    recipe_option,
    model_option,
    bank_option(),
    skip_unreadable_option,
    seed_option("what is held out, views and order"),
)


@command(
    "atlas adapt few-shot my_photos -o mine.atlas.safetensors",
    "atlas adapt few-shot my_photos.zip --query new/*.jpg --json",
)
@click.argument(
    "folder", metavar="DIR", type=PATH,
    help="one sub-folder a class, a zip of them, a .csv table, or an export of Label Studio or FiftyOne",
)  # fmt: skip
@recipe_option
@click.option(
    "--query", cls=SeveralValues, multiple=True, type=PATH, metavar="IMAGE...",
    help="images to compare both models on",
)  # fmt: skip
@method_option(FEW_SHOT_METHODS)
@click.option(
    "--validation", metavar="DIR", type=PATH,
    help="more images of the same classes, to keep the best epoch by; not for auto",
)  # fmt: skip
@click.option(
    "--negatives", metavar="DIR", type=PATH,
    help="images that show none of the classes, to learn 'none of these' from",
)  # fmt: skip
@templates_option
@model_option
@bank_option()
@skip_unreadable_option
@seed_option("views and order")
@settings(FewShotResources, "resources")
@settings(FewShotConfig)
@json_flag
def few_shot(
    *,
    folder: Path,
    output: Path | None,
    query: tuple[Path, ...],
    method: str,
    validation: Path | None,
    negatives: Path | None,
    templates: tuple[str, ...],
    model: str,
    bank: Path | None,
    skip_unreadable: bool,
    seed: int,
    resources: FewShotResources,
    config: FewShotConfig,
    as_json: bool,
) -> None:
    """Learn from a few labelled images.

    Learns how to mix the bank's task vectors, and a head beside them, from a few images of each class. Images
    are held out in turn to see whether that helps; where it does not, it stays zero-shot. Ctrl-C keeps the
    best so far.
    """
    from atlas_engine.data.decode import read_image
    from atlas_engine.engine import open as open_atlas

    support = read_support(folder, skip_unreadable=skip_unreadable)
    more = None if validation is None else read_support(validation, skip_unreadable=skip_unreadable)
    if negatives is not None:
        support = support.with_negatives(tuple(read_image(file) for file in image_files([negatives])))
    with open_atlas(model, bank=bank) as engine:
        asked = engine.read_images(image_files(query)) if query else []
        run = engine.few_shot(
            support,
            method=method,
            config=config,
            validation=more,
            templates=templates or None,
            budget=resources.budget,
            select=resources.select,
            memory_limit=resources.memory_limit,
            seed=seed,
        )
        result = run_with_progress(run, output=output)
        answers = engine.compare(asked, result.recipe) if asked else None
    calibration = result.recipe.calibration
    facts = {
        "estimates": _estimate_facts(result),
        "advice": None if result.advice is None else dataclasses.asdict(result.advice),
        "calibration": None if calibration is None else dataclasses.asdict(calibration),
        "zero_shot": [] if answers is None else answers.zero_shot.as_rows(),
        "adapted": [] if answers is None else answers.adapted.as_rows(),
    }
    parts = [_estimate_table(result)] if result.estimates else []
    parts += [] if result.advice is None else [result.advice.sentence]
    parts += [] if answers is None else [comparison_table(answers)]
    print_result(result, output, as_json=as_json, facts=facts, parts=parts)


@command(
    "atlas adapt negate --target faces --control everything_else -o forget.atlas.safetensors",
    "atlas adapt negate --target faces --control everything_else --keep 0.98 --json",
)
@click.option(
    "--target", metavar="DIR", type=PATH, required=True, help="classes to forget, a sub-folder each"
)
@click.option("--control", metavar="DIR", type=PATH, required=True, help="classes to keep, a sub-folder each")
@click.option(
    "--vector", metavar="NAME", help="the target's own vector (default: by its name, or the likest)"
)
@method_option(NEGATIONS)
@arithmetic_options
@settings(NegateConfig)
@json_flag
def negate(
    *,
    target: Path,
    control: Path,
    vector: str | None,
    method: str,
    output: Path | None,
    model: str,
    bank: Path | None,
    skip_unreadable: bool,
    seed: int,
    config: NegateConfig,
    as_json: bool,
) -> None:
    """Forget a set of classes.

    Learns coefficients of the bank's task vectors that make the model fail on the target while the control
    keeps a share of its accuracy, on images held out of both. Where nothing can be forgotten within that
    bound, it says so and stays zero-shot. Ctrl-C keeps the best so far.
    """
    from atlas_engine.adapt.arithmetic.tasks import vector_of
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas

    folder = read_folder(target)
    to_forget = read_support(folder, skip_unreadable=skip_unreadable)
    to_keep = read_support(control, skip_unreadable=skip_unreadable)
    with open_atlas(model, bank=bank) as engine:
        vector = vector or vector_of(engine.bank, folder.name)
        run = engine.negate(to_forget, to_keep, vector=vector, method=method, config=config, seed=seed)
        result = run_with_progress(run, output=output)
    _print_arithmetic(result, output, as_json=as_json)


@command(
    "atlas adapt add photos/mnist photos/gtsrb photos/intel -o both.atlas.safetensors",
    "atlas adapt add photos/mnist photos/gtsrb --method scalar --json",
)
@click.argument(
    "folders", metavar="DIR...", nargs=-1, required=True, type=PATH,
    help="a task each, with one sub-folder a class",
)  # fmt: skip
@method_option(ADDITIONS, note="adamerging reads no labels")
@arithmetic_options
@settings(AddConfig)
@json_flag
def add(
    *,
    folders: tuple[Path, ...],
    method: str,
    output: Path | None,
    model: str,
    bank: Path | None,
    skip_unreadable: bool,
    seed: int,
    config: AddConfig,
    as_json: bool,
) -> None:
    """One model for several tasks.

    Learns one set of coefficients for several tasks, each under its own class names. A task's own vector is
    found by its folder's name; where one is missing, the whole bank is mixed. Ctrl-C keeps the best so far.
    """
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas

    read = [read_folder(path) for path in folders]
    names = [folder.name for folder in read]
    if len(set(names)) < len(names):
        names = distinct_names(folders)
    supports = [read_support(folder, skip_unreadable=skip_unreadable) for folder in read]
    with open_atlas(model, bank=bank) as engine:
        tasks = dict(zip(names, supports, strict=True))
        run = engine.add(tasks, method=method, config=config, seed=seed)
        result = run_with_progress(run, output=output)
    _print_arithmetic(result, output, as_json=as_json)


# ---- what the commands of `atlas adapt` print


def print_result(
    result: AdaptResult,
    output: Path | None,
    *,
    as_json: bool,
    facts: Mapping[str, object],
    parts: Sequence[str],
) -> None:
    """Print the verdict with the facts, as JSON, or with the parts and where the recipe is, as words."""
    if as_json:
        verdict = {
            "method": result.verdict.kept,
            "helped": result.verdict.helped,
            "sentence": result.verdict.sentence,
            "outcome": result.outcome.value,
            "seconds": result.seconds,
        }
        emit_json({**verdict, **facts})
    else:
        recipe = [f"recipe: {output}"] if output else []
        emit("\n\n".join([result.verdict.sentence, *parts, *recipe]))


def comparison_table(answers: Comparison) -> str:
    """Both models' first answers, image by image."""
    pairs = zip(answers.zero_shot.top(1), answers.adapted.top(1), answers.adapted.names, strict=True)
    rows = [
        (name, old.label, round(100 * old.prob, 1), answer, round(100 * new.prob, 1))
        for ((old,), (new,), name), answer in zip(pairs, answers.adapted.answers, strict=True)
    ]
    return table(rows, ("image", "zero-shot", "%", "adapted", "%"))


def _print_arithmetic(result: AdaptResult, output: Path | None, *, as_json: bool) -> None:
    facts = {"estimates": _estimate_facts(result)}
    print_result(result, output, as_json=as_json, facts=facts, parts=[_estimate_table(result)])


def _estimate_facts(result: AdaptResult) -> list[dict[str, object]]:
    """What was measured on images held out, as plain JSON types."""
    return [
        {"method": e.method, "accuracy": e.accuracy, "low": e.low, "high": e.high, "images": e.images}
        for e in result.estimates
    ]


def _estimate_table(result: AdaptResult) -> str:
    """What was measured on images held out, as a table."""
    rows = [(e.method, 100 * e.accuracy, 100 * e.low, 100 * e.high, e.images) for e in result.estimates]
    return table(rows, ("held out", "right %", "from", "to", "images"))


def read_support(folder: Path | ClassFolder, *, skip_unreadable: bool) -> Support:
    """The labelled images of a folder; what is odd about them is said on stderr."""
    from atlas_engine.data.support import Support

    support, left_out = Support.read(folder, on_error="skip" if skip_unreadable else "raise")
    for sentence in (*map(str, left_out), *support.warnings()):
        say(sentence)
    return support
