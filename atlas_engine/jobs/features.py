"""Features of every image below a folder that may be larger than memory, in one safetensors file.

    tasks = feature_tasks(engine, model, Path("photos"), images, skip=False, threads=1)
    count = write_features(run_tasks(tasks, executor=executor, ledger=ledger), path, model=…, fingerprint=…)

A task is a few hundred images. Ray Data would do the same on Ray alone: these tasks run on all executors,
keep what is done under the hash of the images, and come in order without a shuffle. In memory are the paths
of all images, and pixels and features of the tasks under way; on disk the features lie twice until the end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from torch import Tensor

from atlas_engine.data.decode import read_each
from atlas_engine.data.image import DEFAULT_LIMITS
from atlas_engine.engine import Atlas
from atlas_engine.errors import SupportError
from atlas_engine.executors.ledger import key_of
from atlas_engine.executors.run import Done
from atlas_engine.executors.task import Answer, Task, task_facts
from atlas_engine.files import atomic_write, sha256_of
from atlas_engine.jobs.sessions import open_session, require_here

__all__ = ["FEATURES", "compute_features", "feature_tasks", "names_file", "write_features"]

FEATURES = "features"
CHUNK = 256  # images of a task
BATCH = 32  # images in memory at full size


def feature_tasks(
    engine: Atlas,
    model: str,
    root: Path,
    images: Sequence[str],
    *,
    skip: bool,
    threads: int | None,
    chunk: int = CHUNK,
) -> Iterator[Task]:
    """Tasks for the images, which are paths below `root`; they are hashed as tasks are asked for.

    `skip` leaves out images that cannot be read, instead of failing.
    """
    for start in range(0, len(images), chunk):
        part = list(images[start : start + chunk])
        digests = [sha256_of(root / name) for name in part]
        key = key_of("features", engine.fingerprint, part, digests, skip, *task_facts(threads))
        arguments = {"model": model, "root": str(root.resolve()), "images": part, "skip": skip}
        yield Task(key, f"images {start + 1} to {start + len(part)}", compute_features, arguments)


def compute_features(*, model: str, root: str, images: list[str], skip: bool) -> Answer:
    """Features (N D) in float32, of length 1, and the names of the N images."""
    engine, folder = open_session(model), require_here(root)
    features: list[Tensor] = []
    names: list[str] = []
    on_error: Literal["skip", "raise"] = "skip" if skip else "raise"
    for start in range(0, len(images), BATCH):
        named = ((name, name, folder / name) for name in images[start : start + BATCH])
        read, _ = read_each(named, limits=DEFAULT_LIMITS, isolated=True, on_error=on_error, stop=None)
        if read:
            features.append(engine.features([image for _, image in read]).cpu())
            names += [name for name, _ in read]
    rows = torch.cat(features) if features else torch.empty(0, engine.backbone.dim)
    facts = {"names": names, "dim": engine.backbone.dim}
    return Answer(facts, safetensors.torch.save({FEATURES: rows.contiguous()}))


def names_file(path: Path) -> Path:
    """Where the names of a features file are: `photos.safetensors` has `photos.names.txt`."""
    return path.with_suffix(".names.txt")


def write_features(done: Iterable[Done], path: Path, *, model: str, fingerprint: str) -> int:
    """Write the features, and the names of their images a line each. Returns how many there are.

    Every task's answer is in a ledger on disk; here one is in memory at a time.
    """
    parts, count, dim = [], 0, 0
    for one in done:
        parts.append(one)
        count, dim = count + len(one.facts["names"]), one.facts["dim"]
    if not count:
        raise SupportError("no image could be read, so there are no features. Look at the files.")
    nbytes = count * dim * torch.float32.itemsize
    header = {
        "__metadata__": {"format": "atlas-features-1", "model": model, "model_fingerprint": fingerprint},
        FEATURES: {"dtype": "F32", "shape": [count, dim], "data_offsets": [0, nbytes]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (
        atomic_write(names_file(path)) as names,
        atomic_write(path) as file,
        names.open("w", encoding="utf-8", errors="backslashreplace") as lines,
        file.open("wb") as data,
    ):
        data.write(len(text).to_bytes(8, "little"))
        data.write(text)
        for one in parts:
            rows = safetensors.torch.load(one.tensors())[FEATURES]
            data.write(rows.numpy().data)
            lines.writelines(f"{name}\n" for name in one.facts["names"])
    return count
