"""A bank from several folders of labelled images: a task vector from each, a task for each.

tasks = training_tasks(engine, model, {"pets": Path("photos/pets")}, settings=TrainSettings(), …)
bank = collect_bank(run_tasks(tasks, executor=executor, ledger=ledger))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.edit import join_banks
from atlas_engine.bank.vector import fingerprint
from atlas_engine.data.folders import ClassFolder, read_folder
from atlas_engine.data.image_files import ImageFiles
from atlas_engine.engine import Atlas
from atlas_engine.executors.ledger import key_of
from atlas_engine.executors.run import Done
from atlas_engine.executors.task import Answer, Task, task_facts
from atlas_engine.jobs.sessions import bank_from_bytes, bank_to_bytes, open_session, require_here
from atlas_engine.runtime import drain
from atlas_engine.training import TrainSettings, check_name, train_vector

__all__ = ["collect_bank", "folder_digest", "train_one", "training_tasks"]


def training_tasks(
    engine: Atlas,
    model: str,
    folders: Mapping[str, Path],
    *,
    settings: TrainSettings,
    storage: str,
    state: Path,
    threads: int | None,
    track_pattern: str | None = None,
    class_names: Mapping[str, str] | None = None,
) -> Iterator[Task]:
    """A task for each folder, under the name of its vector.

    `engine` is a session with the `model` that workers open by name. An unfinished training is kept in a file
    whose name begins with that of `state` and ends in the task's key, where the worker has that folder.
    """
    base = fingerprint(dict(engine.backbone.visual.named_parameters()))
    for name, path in folders.items():
        check_name(name)
        digest = folder_digest(read_folder(path, track_pattern=track_pattern))
        names = dict(class_names or {})
        facts = (engine.fingerprint, base, digest, path.name, name, settings.as_dict(), storage, names)
        key = key_of("bank train", *facts, *task_facts(threads))
        arguments = {
            "model": model,
            "folder": str(path.resolve()),
            "name": name,
            "settings": settings.as_dict(),
            "storage": storage,
            "track_pattern": track_pattern,
            "class_names": names,
            "state": str(state.with_name(f"{state.name}.{key}").resolve()),
        }
        yield Task(key, name, train_one, arguments)


def train_one(
    *,
    model: str,
    folder: str,
    name: str,
    settings: Mapping[str, Any],
    storage: str,
    track_pattern: str | None,
    class_names: Mapping[str, str],
    state: str,
) -> Answer:
    """One vector as a bank in `storage`."""
    images = read_folder(require_here(folder), track_pattern=track_pattern)
    file = Path(state)
    work = train_vector(
        open_session(model),
        images,
        name=name,
        settings=TrainSettings.from_dict(settings),
        class_names=class_names,
        state=file if file.parent.is_dir() else None,
    )
    bank = TaskVectorBank.from_vectors([drain(work)], storage=storage)
    return Answer({"vectors": list(bank.tasks)}, bank_to_bytes(bank))


def collect_bank(done: Iterable[Done]) -> TaskVectorBank:
    """One bank of the vectors in all answers, in the order of the tasks."""
    return join_banks([bank_from_bytes(one.tensors()) for one in done])


def folder_digest(folder: ClassFolder) -> str:
    """A hash of all that a folder holds: classes, and the name, label, track and bytes of each image."""
    digest = hashlib.sha256(repr(folder.classes).encode())
    files = ImageFiles(tuple(item.source for item in folder.items), tuple(item.name for item in folder.items))
    for index, item in enumerate(folder.items):
        digest.update(repr((item.name, item.label, item.track, files.file_digest(index))).encode())
    return digest.hexdigest()
