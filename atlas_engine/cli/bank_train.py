"""`atlas bank train`: a task vector from a folder of labelled images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import PATH, command, json_flag, model_option, settings, track_pattern_option
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.training import TrainSettings
from atlas_engine.views.tables import table

if TYPE_CHECKING:
    from atlas_engine.bank.vector import TaskVector
    from atlas_engine.engine import Atlas
    from atlas_engine.training import TrainingProgress, Work

__all__ = ["train"]

COLUMNS = (
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


@command(
    "atlas bank train photos/pets --name pets -o pets.safetensors",
    "atlas bank train photos/digits --name digits --into bank.safetensors --no-flip",
)
@click.argument("folder", type=PATH, metavar="DIR", help="one sub-folder a class")
@click.option("--name", required=True, metavar="N", help="what the vector is called")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="a bank file of this vector alone")
@click.option("--into", type=PATH, metavar="BANK", help="a bank file to add it to, or to replace it in")
@model_option
@click.option(
    "--storage", default="float32", metavar="S", help="of a new file: float32 (default), float16, int8, …"
)
@track_pattern_option
@click.option(
    "--class-names", type=PATH, metavar="JSON", help='better names of folders: {"0": "the digit zero"}'
)
@click.option("--restart", is_flag=True, help="forget a training that was stopped")
@settings(TrainSettings)
@json_flag
def train(
    *,
    folder: Path,
    name: str,
    output: Path | None,
    into: Path | None,
    model: str,
    storage: str,
    track_pattern: str | None,
    class_names: Path | None,
    restart: bool,
    config: TrainSettings,
    as_json: bool,
) -> None:
    """Make a task vector from a folder of classes.

    The text head stays frozen; the difference of the image tower is the vector. Accuracies are of images held
    out. Given again, a command that was stopped goes on where it was.
    """
    from atlas_engine.bank.bank import TaskVectorBank
    from atlas_engine.bank.bank_file import save_bank
    from atlas_engine.bank.edit import add_vector_to_file, check_kind_mixes
    from atlas_engine.bank.resume import remove_state
    from atlas_engine.bank.storage import find_storage
    from atlas_engine.data.folders import read_folder
    from atlas_engine.engine import open as open_atlas
    from atlas_engine.training import check_name, train_vector

    target = into or output
    if target is None or (into and output):
        raise click.UsageError("say where the vector goes: -o/--output or --into, one of the two.")
    check_name(name)
    storage = find_storage(storage).name
    images, names = read_folder(folder, track_pattern=track_pattern), _read_names(class_names)
    state = target.with_name(f"{target.name}.{name}.training")
    with open_atlas(model) as engine:
        _require_place(engine, target)
        if into:
            check_kind_mixes(into, name=name, kind=config.kind)
        if restart:
            remove_state(state)
        work = train_vector(engine, images, name=name, settings=config, class_names=names, state=state)
        vector = _train_with_progress(work, name)
    if into:
        add_vector_to_file(vector, target, storage=storage)
    else:
        save_bank(TaskVectorBank.from_vectors([vector], storage=storage), target)
    remove_state(state)
    emit_json(_facts(vector, target)) if as_json else emit(_table(vector))


def _require_place(engine: Atlas, target: Path) -> None:
    """Refuse a bank of another base, or a file that cannot be written, before the work and not after it."""
    from atlas_engine.bank.blocks import block_table
    from atlas_engine.bank.edit import check_bank_target
    from atlas_engine.bank.vector import fingerprint

    weights = dict(engine.backbone.visual.named_parameters())
    check_bank_target(target, base=fingerprint(weights), blocks=block_table(weights.items()))


def _train_with_progress(work: Work, name: str) -> TaskVector:
    """The vector, with a bar for each part of the work.

    Ctrl-C may end it anywhere: the state beside the bank file is what a training goes on from.
    """
    moment = next(work)
    while True:
        first = moment.done - (moment.step is not None)  # a training that goes on does not start at 0
        with ProgressBar(moment.of - first, f"{name}: {moment.what}") as progress:
            what = moment.what
            while moment.what == what:
                progress.advance(moment.done - first - progress.n, _note(moment))
                try:
                    moment = next(work)
                except StopIteration as end:
                    vector: TaskVector = end.value
                    return vector


def _note(moment: TrainingProgress) -> str:
    step = moment.step
    if step is None:
        return ""
    seen = "" if step.val_accuracy is None else f", validation {step.val_accuracy:.1%}"
    return f"step {step.index} of {step.of}, loss {step.loss:.3f}{seen}"


def _read_names(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    try:
        names = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise click.UsageError(f'{path} must hold folder names and class names: {{"0": "the digit zero"}}.')
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
        "kind": info.kind,
        **info.provenance,
    }


def _table(vector: TaskVector) -> str:
    info, facts = vector.info, vector.info.provenance
    counts = [int(facts[key]) for key in ("classes", "train_images", "test_images", "best_step")]
    shares = [None if share is None else 100 * share for share in (info.accuracy_before, info.accuracy_after)]
    return table([(vector.name, info.kind, *counts, *shares, vector.norm())], COLUMNS)
