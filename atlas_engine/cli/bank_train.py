"""`atlas bank train`: a task vector from a folder of labelled images, or from each of several."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import (
    PATH,
    Spread,
    command,
    json_flag,
    model_option,
    settings,
    spread_options,
    track_pattern_option,
)
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar, run_with_bar
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
    "atlas bank train photos/pets cars=photos/vehicles -o bank.safetensors --on processes",
)
@click.argument(
    "folders",
    nargs=-1,
    required=True,
    metavar="DIR...",
    help="one sub-folder a class; of several, each gives a vector of its name, and NAME=DIR names one",
)
@click.option("--name", metavar="N", help="what the vector of one DIR is called (default: as DIR)")
@click.option("-o", "--output", type=PATH, metavar="FILE", help="a bank file of these vectors alone")
@click.option("--into", type=PATH, metavar="BANK", help="a bank file to add them to, or to replace them in")
@model_option
@click.option(
    "--storage", default="float32", metavar="S", help="of a new file: float32 (default), float16, int8, …"
)
@track_pattern_option
@click.option(
    "--class-names", type=PATH, metavar="JSON", help='better names of folders: {"0": "the digit zero"}'
)
@click.option("--restart", is_flag=True, help="forget a training that was stopped")
@spread_options("folders")
@settings(TrainSettings)
@json_flag
def train(
    *,
    folders: tuple[str, ...],
    name: str | None,
    output: Path | None,
    into: Path | None,
    model: str,
    storage: str,
    track_pattern: str | None,
    class_names: Path | None,
    restart: bool,
    spread: Spread,
    config: TrainSettings,
    as_json: bool,
) -> None:
    """Make a task vector from each folder of classes.

    The text head stays frozen; the difference of the image tower is the vector. Accuracies are of images held
    out. Given again, a command that was stopped goes on where it was.
    """
    from atlas_engine.bank.edit import check_kind_mixes
    from atlas_engine.bank.storage import find_storage
    from atlas_engine.engine import open as open_atlas

    target = into or output
    if target is None or (into and output):
        raise click.UsageError("say where the vector goes: -o/--output or --into, one of the two.")
    named = _name_folders(folders, name)
    job = _Job(
        named,
        target,
        into=into is not None,
        model=model,
        storage=find_storage(storage).name,
        track_pattern=track_pattern,
        class_names=_read_names(class_names),
        restart=restart,
        config=config,
    )
    with open_atlas(model) as engine:
        _require_place(engine, target)
        if into:
            for one in named:
                check_kind_mixes(into, name=one, kind=config.kind)
        alone = len(named) == 1 and spread.on is None
        vectors = [_train_one(engine, job)] if alone else _train_several(engine, job, spread)
    if as_json:
        facts = [_facts(vector, target) for vector in vectors]
        emit_json(facts[0] if len(facts) == 1 else facts)
    else:
        emit(_table(vectors))


@dataclass(frozen=True, kw_only=True)
class _Job:
    """What a command was told: folders by the names of their vectors, and where those go."""

    folders: Mapping[str, Path] = field(kw_only=False)
    target: Path = field(kw_only=False)
    into: bool
    model: str
    storage: str  # of a new file
    track_pattern: str | None
    class_names: Mapping[str, str]
    restart: bool
    config: TrainSettings


def _name_folders(words: Sequence[str], name: str | None) -> dict[str, Path]:
    """The folders by the names of their vectors."""
    from atlas_engine.training import check_name

    named: dict[str, Path] = {}
    for word in words:
        given, equals, rest = word.partition("=")
        told = bool(equals) and not Path(word).exists()
        path = Path(rest) if told else Path(word)
        own = given if told else path.resolve().name
        if name is not None:
            if len(words) > 1 or told:
                raise click.UsageError("--name is for one DIR. Name several as NAME=DIR.")
            own = name
        check_name(own)
        if own in named:
            raise click.UsageError(f"two folders would both be called '{own}'. Name one as NAME=DIR.")
        named[own] = path
    return named


def _train_one(engine: Atlas, job: _Job) -> TaskVector:
    """The vector of the only folder, trained in this process and written, with a bar for each part."""
    from atlas_engine.bank.bank import TaskVectorBank
    from atlas_engine.bank.bank_file import save_bank
    from atlas_engine.bank.edit import add_vector_to_file
    from atlas_engine.bank.resume import remove_state
    from atlas_engine.data.folders import read_folder
    from atlas_engine.training import train_vector

    ((name, path),) = job.folders.items()
    images = read_folder(path, track_pattern=job.track_pattern)
    state = job.target.with_name(f"{job.target.name}.{name}.training")
    if job.restart:
        remove_state(state)
    work = train_vector(
        engine, images, name=name, settings=job.config, class_names=job.class_names, state=state
    )
    vector = _train_with_progress(work, name)
    if job.into:
        add_vector_to_file(vector, job.target, storage=job.storage)
    else:
        save_bank(TaskVectorBank.from_vectors([vector], storage=job.storage), job.target)
    remove_state(state)
    return vector


def _train_several(engine: Atlas, job: _Job, spread: Spread) -> list[TaskVector]:
    """The vectors of all folders, a task for each, and written once all are there.

    What is done is kept beside the bank file until then: Ctrl-C costs the tasks under way.
    """
    from atlas_engine.bank.bank_file import BankFile, load_bank, save_bank
    from atlas_engine.bank.edit import with_bank
    from atlas_engine.bank.resume import remove_state
    from atlas_engine.executors import Ledger
    from atlas_engine.jobs.train import collect_bank, training_tasks
    from atlas_engine.library import require_memory, tower_weights

    target, grows = job.target, job.into and job.target.exists()
    state, ledger = (
        target.with_name(f"{target.name}.training"),
        Ledger(target.with_name(f"{target.name}.tasks")),
    )
    if job.restart:
        ledger.remove()
    storage = job.storage
    if grows:
        with BankFile(target) as file:
            storage = file.storage
    require_memory(tower_weights(engine.backbone), storage, len(job.folders))
    tasks = training_tasks(
        engine,
        job.model,
        job.folders,
        settings=job.config,
        storage=storage,
        state=state,
        threads=spread.threads,
        track_pattern=job.track_pattern,
        class_names=job.class_names,
    )
    with spread.open() as executor:
        done = list(run_with_bar(tasks, len(job.folders), "training", executor=executor, ledger=ledger))
    bank = collect_bank(done)
    save_bank(with_bank(load_bank(target), bank) if grows else bank, target)
    ledger.remove()
    for one in done:
        remove_state(state.with_name(f"{state.name}.{one.task.key}"))
    return [bank.vector(name) for name in bank.tasks]


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


def _table(vectors: Sequence[TaskVector]) -> str:
    rows = []
    for vector in vectors:
        info, facts = vector.info, vector.info.provenance
        counts = [int(facts[key]) for key in ("classes", "train_images", "test_images", "best_step")]
        shares = [
            None if share is None else 100 * share for share in (info.accuracy_before, info.accuracy_after)
        ]
        rows.append((vector.name, info.kind, *counts, *shares, vector.norm()))
    return table(rows, COLUMNS)
