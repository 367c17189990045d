"""`atlas adapt test-time`: images without labels and class names in, a recipe out.

Where the images lie in folders named after the classes, those names are compared with the answers when all
is over. They go nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.adapt.methods import NORM_BASELINES, UNLABELLED_METHODS
from atlas_engine.adapt.selection import VectorBudget
from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.cli.adapt import comparison_table, print_result
from atlas_engine.cli.options import (
    bank_option,
    command,
    images_argument,
    json_flag,
    method_option,
    model_option,
    parse_words,
    recipe_option,
    seed_option,
    settings,
    templates_option,
)
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.predict import image_files
from atlas_engine.cli.progress import ProgressBar, run_with_progress

if TYPE_CHECKING:
    from atlas_engine.adapt.stream import Stream
    from atlas_engine.data.image import Image
    from atlas_engine.predictions import Comparison, Predictions

__all__ = ["test_time"]


@command(
    'atlas adapt test-time camera_roll --classes "otter,seal,walrus" -o mine.atlas.safetensors',
    'atlas adapt test-time *.jpg --classes "cat,dog" --objective ufm --online --json',
)
@images_argument
@click.option(
    "--classes", type=parse_words, required=True, metavar="A,B", help="class names, separated by commas"
)
@templates_option
@recipe_option
@method_option(
    UNLABELLED_METHODS,
    flag="--objective",
    note=f"{', '.join(NORM_BASELINES)} are baselines that tune norm layers",
)
@click.option(
    "--online", is_flag=True,
    help="answer each image when it arrives, in the order given, by those before it and itself",
)  # fmt: skip
@model_option
@bank_option()
@seed_option("views and order")
@settings(VectorBudget, "vectors")
@settings(TestTimeConfig)
@json_flag
def test_time(
    *,
    images: tuple[Path, ...],
    classes: tuple[str, ...],
    templates: tuple[str, ...],
    output: Path | None,
    objective: str,
    online: bool,
    model: str,
    bank: Path | None,
    seed: int,
    vectors: VectorBudget,
    config: TestTimeConfig,
    as_json: bool,
) -> None:
    """Learn from images without labels.

    Learns from images alone what their kind looks like: no labels, only the names of the classes that may be
    among them. Where a check says that it does not help, it stays zero-shot and tells why. Ctrl-C keeps the
    best so far.
    """
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.predictions import Comparison, predictions_from_logits

    files = image_files(images)
    chosen = templates or None
    baseline = objective in NORM_BASELINES
    if baseline and (output or online):
        raise click.UsageError(
            f"{objective} tunes norm layers, which no recipe can hold: it only answers, without -o and "
            f"--online. For a recipe choose --objective {objective.removeprefix('ln-')}."
        )
    if vectors.budget is not None and (baseline or online):
        raise click.UsageError(
            "--budget chooses task vectors for all images together: it goes neither with --online nor with a "
            "baseline that tunes norm layers. Leave one of them out."
        )
    with open_atlas(model, bank=bank) as engine:
        read = engine.read_images(files)
        if baseline:
            run = engine.test_time_norms(
                read, classes, method=objective, config=config, templates=chosen, seed=seed
            )
            answer, before = run.result(), engine.predict(read, classes, templates=chosen)
            after = predictions_from_logits(before.names, before.classes, answer.logits)
            facts, parts = _answers(Comparison(before, after), files)
            sentence = f"{objective}, a baseline: {answer.reason}"
            if as_json:
                emit_json({"method": objective, "sentence": sentence, "seconds": answer.seconds, **facts})
            else:
                emit("\n\n".join([sentence, *parts]))
            return
        if online:
            stream = engine.stream(classes, objective=objective, learning=config, templates=chosen, seed=seed)
            after = _answer_online(stream, read)
            result = stream.result()
            if output is not None:
                result.save(output)
            answers = Comparison(engine.predict(read, classes, templates=chosen), after)
        else:
            work = engine.test_time(
                read,
                classes,
                objective=objective,
                config=config,
                templates=chosen,
                budget=vectors.budget,
                seed=seed,
            )
            result = run_with_progress(work, output=output)
            answers = engine.compare(read, result.recipe)
    facts, parts = _answers(answers, files)
    facts = {"rolled_back": result.fell_back, **facts}
    print_result(result, output, as_json=as_json, facts=facts, parts=parts)


def _answer_online(stream: Stream, images: Sequence[Image]) -> Predictions:
    """What the stream answered when each image arrived."""
    from atlas_engine.predictions import join_predictions

    answers = []
    with ProgressBar(len(images), "answering as they arrive") as progress:
        for image in images:
            answers.append(stream.answer(image))
            progress.advance(1, image.name)
    return join_predictions(answers)


def _answers(answers: Comparison, files: Sequence[Path]) -> tuple[dict[str, object], list[str]]:
    """Both models' answers and their score, as plain JSON types and as words."""
    score = _count_right(answers, _class_of_folder(files, answers.adapted.classes))
    facts: dict[str, object] = {
        "score": score,
        "zero_shot": answers.zero_shot.as_rows(),
        "adapted": answers.adapted.as_rows(),
    }
    sentence = (
        f"by the names of their folders, which adapting never saw: of {score['images']} images zero-shot "
        f"has {score['zero_shot_right']} right, the adapted model {score['adapted_right']}."
    )
    return facts, [comparison_table(answers), *([sentence] if score["images"] else [])]


def _class_of_folder(files: Sequence[Path], classes: Sequence[str]) -> list[str | None]:
    """The class that each image's folder is named after, for the score alone; None for any other folder."""
    from atlas_engine.data.folders import display_name

    known = {name.casefold(): name for name in classes}
    return [known.get(display_name(path.parent.name).casefold()) for path in files]


def _count_right(answers: Comparison, truth: Sequence[str | None]) -> dict[str, int]:
    """How many of the images whose class is known each model has right."""
    known = [row for row, name in enumerate(truth) if name is not None]

    def right(labels: Sequence[str]) -> int:
        return sum(labels[row] == truth[row] for row in known)

    return {
        "images": len(known),
        "zero_shot_right": right(answers.zero_shot.labels),
        "adapted_right": right(answers.adapted.labels),
    }
