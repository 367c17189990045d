"""`atlas bank train`: a task vector from a folder of labelled images."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.arguments import add_model, add_track_pattern
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.cli.progress import Progress
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.bank.vector import TaskVector
    from atlas_engine.engine import Atlas
    from atlas_engine.training import TrainingMoment, Work

__all__ = ["TRAIN"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """A folder, a name, where the vector goes; and the settings of the training."""
    from atlas_engine.training import TrainSettings

    parser.add_argument("folder", type=Path, metavar="DIR", help="one sub-folder a class")
    parser.add_argument("--name", required=True, metavar="N", help="what the vector is called")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("-o", "--output", type=Path, metavar="FILE", help="a bank file of this vector alone")
    place.add_argument(
        "--into", type=Path, metavar="BANK", help="a bank file to add it to, or to replace it in"
    )
    add_model(parser)
    parser.add_argument(
        "--storage", default="float32", metavar="S", help="of a new file: float32 (default), float16, int8, …"
    )
    add_track_pattern(parser)
    parser.add_argument(
        "--class-names", type=Path, metavar="JSON", help='better names of folders: {"0": "the digit zero"}'
    )
    parser.add_argument("--restart", action="store_true", help="forget a training that was stopped")
    add_settings(parser, TrainSettings)
    add_json_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Train, or go on with a training that was stopped; write the vector, and print what it gained."""
    from atlas_engine.bank.bank import TaskVectorBank
    from atlas_engine.bank.bank_file import save_bank
    from atlas_engine.bank.edit import add_vector_to_file
    from atlas_engine.bank.resume import remove_state
    from atlas_engine.bank.storage import storage_named
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.training import TrainSettings, check_name, train_vector

    settings, target = settings_from(args, TrainSettings), args.into or args.output
    check_name(args.name)
    storage = storage_named(args.storage).name
    folder, names = read_folder(args.folder, track_pattern=args.track_pattern), _names(args.class_names)
    state = target.with_name(f"{target.name}.{args.name}.training")
    with open_atlas(args.model) as engine:
        _require_place(engine, target)
        if args.restart:
            remove_state(state)
        work = train_vector(engine, folder, name=args.name, settings=settings, class_names=names, state=state)
        vector = _trained(work, args.name)
    if args.into:
        add_vector_to_file(vector, target, storage=storage)
    else:
        save_bank(TaskVectorBank.from_vectors([vector], storage=storage), target)
    remove_state(state)
    emit_json(_facts(vector, target)) if args.json else emit(_table(vector))
    return 0


def _require_place(engine: Atlas, target: Path) -> None:
    """Complain before the work, not after it."""
    from atlas_engine.bank.blocks import block_table
    from atlas_engine.bank.edit import check_bank_target
    from atlas_engine.bank.vector import fingerprint

    weights = dict(engine.backbone.visual.named_parameters())
    check_bank_target(target, base=fingerprint(weights), blocks=block_table(weights.items()))


def _trained(work: Work, name: str) -> TaskVector:
    """The vector, with a line of progress for each part of the work.

    Ctrl-C may end it anywhere: the state beside the bank file is what a training goes on from.
    """
    moment = next(work)
    while True:
        first = moment.done - (moment.step is not None)  # a training that goes on does not start at 0
        with Progress(moment.of - first, f"{name}: {moment.what}") as progress:
            what = moment.what
            while moment.what == what:
                progress.advance(moment.done - first - progress.done, _note(moment))
                try:
                    moment = next(work)
                except StopIteration as end:
                    vector: TaskVector = end.value
                    return vector


def _note(moment: TrainingMoment) -> str:
    step = moment.step
    if step is None:
        return ""
    seen = "" if step.val_accuracy is None else f", validation {step.val_accuracy:.1%}"
    return f"step {step.index} of {step.of}, loss {step.loss:.3f}{seen}"


def _names(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise MisuseError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise MisuseError(f'{path} must hold folder names and class names: {{"0": "the digit zero"}}.')
    return names


def _facts(vector: TaskVector, target: Path) -> dict[str, object]:
    info = vector.info
    return {
        "name": vector.name,
        "file": str(target),
        "dataset": info.dataset,
        "accuracy_before": info.accuracy_before,
        "accuracy_after": info.accuracy_after,
        "norm": vector.norm(),
        "digest": vector.digest(),
        "base": vector.base,
        **info.provenance,
    }


def _table(vector: TaskVector) -> str:
    info, facts = vector.info, vector.info.provenance
    columns = (
        "vector",
        "kind",
        "classes",
        "learned from",
        "held out",
        "best step",
        "before %",
        "after %",
        "norm",
    )
    counts = [int(facts[key]) for key in ("classes", "train_images", "test_images", "best_step")]
    shares = [None if share is None else 100 * share for share in (info.accuracy_before, info.accuracy_after)]
    return table([(vector.name, facts["kind"], *counts, *shares, vector.norm())], columns)


TRAIN = Command(
    arguments,
    run,
    examples=(
        "atlas bank train photos/pets --name pets -o pets.safetensors",
        "atlas bank train photos/digits --name digits --into bank.safetensors --no-flip",
    ),
    about="The text head stays frozen; the difference of the image tower is the vector. Accuracies are of\n"
    "images held out. Given again, a command that was stopped goes on where it was.",
)
