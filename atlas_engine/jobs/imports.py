"""A bank from checkpoints, a task for each: `library.import_bank`, spread.

tasks = import_tasks(sources, backbone, model, storage="int8", threads=1)
bank = collect_bank(run_tasks(tasks, executor=executor, ledger=ledger))
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from atlas_engine.bank.vector import fingerprint
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.checkpoints.sources import CheckpointSource
from atlas_engine.executors.ledger import key_of
from atlas_engine.executors.task import Answer, Task, task_facts
from atlas_engine.files import sha256_of
from atlas_engine.jobs.sessions import bank_to_bytes, open_session, require_here
from atlas_engine.library import ImportedVector, import_source, tower_weights

__all__ = ["import_one", "import_tasks", "imported_vectors"]

SIDECARS = (".json", ".md")  # what lies beside a checkpoint and is read with it


def import_tasks(
    sources: Sequence[CheckpointSource],
    backbone: Backbone,
    model: str,
    *,
    storage: str,
    threads: int | None,
    lora_alpha: float | None = None,
    kind: str | None = None,
) -> Iterator[Task]:
    """A task for each source. Files on the hub are fetched by the machine that carries the task out."""
    base = fingerprint(dict(backbone.visual.named_parameters()))
    for source in sources:
        place = source.where if source.is_remote else str(Path(source.where).resolve())
        content = source.where if source.is_remote else _digest(Path(source.where))
        settings = {"storage": storage, "lora_alpha": lora_alpha, "kind": kind}
        facts = (base, source.name, Path(source.where).name, content, settings)
        arguments = {"model": model, "name": source.name, "where": place, "is_remote": source.is_remote}
        yield Task(
            key_of("bank import", *facts, *task_facts(threads)), source.name, import_one, arguments | settings
        )


def import_one(
    *,
    model: str,
    name: str,
    where: str,
    is_remote: bool,
    storage: str,
    lora_alpha: float | None,
    kind: str | None,
) -> Answer:
    """The vectors of one source as a bank, with what is to be said of each."""
    backbone = open_session(model).backbone
    source = CheckpointSource(name, where if is_remote else str(require_here(where)), is_remote)
    bank, vectors = import_source(
        source, tower_weights(backbone), backbone, storage=storage, lora_alpha=lora_alpha, kind=kind
    )
    return Answer({"vectors": [asdict(vector) for vector in vectors]}, bank_to_bytes(bank))


def imported_vectors(facts: Mapping[str, Any]) -> list[ImportedVector]:
    """What an answer says of its vectors."""
    return [ImportedVector(**vector) for vector in facts["vectors"]]


def _digest(file: Path) -> str:
    """A hash of the file, and of the small files beside it that may tell more of it."""
    beside = sorted(path for path in file.parent.iterdir() if path.suffix in SIDECARS and path.is_file())
    parts = [sha256_of(path) for path in (file, *beside)]
    return hashlib.sha256("".join(parts).encode()).hexdigest()
