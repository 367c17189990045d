"""Which checkpoints words stand for: files, folders, hub ids, public banks. Opens none of them.

find_sources(["tanganke-b32"])                      the twenty checkpoints of a public bank
find_sources(["runs/", "cars=old/finetuned.pt"])    all below a folder, and one under a name of its own
find_sources(["owner/name"])                        a repository on the hub
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atlas_engine.clip.checkpoints.checkpoint import ENDINGS
from atlas_engine.clip.checkpoints.hub import PREFIX
from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS
from atlas_engine.errors import ModelError

__all__ = ["CheckpointSource", "find_sources"]

PLAIN_STEMS = {
    "model",
    "pytorch_model",
    "open_clip_model",
    "open_clip_pytorch_model",
    "checkpoint",
    "weights",
}
PLAIN_STEMS |= {"finetuned", "nonlinear_finetuned"}
"""File names that say nothing of the task: the folder's name does."""

NO_TASK = re.compile(r"^(zeroshot|head_|optimizer|scheduler|rng_state|training_args)")
"""Files beside fine-tuned checkpoints that hold no fine-tuned tower."""


@dataclass(frozen=True)
class CheckpointSource:
    """One checkpoint: the name its vector gets, and a path or a hub id."""

    name: str
    where: str
    is_remote: bool = False


def find_sources(words: Sequence[Path | str]) -> list[CheckpointSource]:
    """The checkpoints that words stand for, in order; two of one name are refused.

    A folder gives every checkpoint below it. A hub id is `owner/name`, or `hf-hub:owner/name/path/in/it.pt`.
    """
    sources = [source for word in words for source in _sources(str(word))]
    if not sources:
        raise ModelError("got no checkpoint. Give files, folders, hub ids or the name of a public bank.")
    names = [source.name for source in sources]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        places = " and ".join(source.where for source in sources if source.name == twice)
        raise ModelError(
            f"{places} would both be called '{twice}'. Name them yourself, as in {twice}-1=path/to/file.pt."
        )
    return sources


def _sources(word: str) -> list[CheckpointSource]:
    name, equals, rest = word.partition("=")
    path = Path(word).expanduser()
    if equals and not path.exists():
        found = _sources(rest)
        if len(found) > 1:
            raise ModelError(f"'{rest}' holds {len(found)} checkpoints, but '{name}' can name only one.")
        return [replace(found[0], name=name)]
    if word in PUBLIC_BANKS:
        return _public(word)
    if path.is_dir():
        return _in_folder(path)
    return [CheckpointSource(_task_name(path), str(path)) if path.is_file() else _remote(word)]


def _public(name: str) -> list[CheckpointSource]:
    bank = PUBLIC_BANKS[name]
    if not bank.checkpoints:
        raise ModelError(f"the bank '{name}' cannot be fetched file by file: {bank.about}.")
    return [CheckpointSource(task, where, is_remote=True) for task, where in bank.checkpoints.items()]


def _in_folder(folder: Path) -> list[CheckpointSource]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
    kept = [path for path in files if not NO_TASK.match(path.name)]
    if not kept:
        raise ModelError(f"{folder} holds no checkpoint. One ends in {', '.join(ENDINGS)}.")
    return [CheckpointSource(_task_name(path), str(path)) for path in kept]


def _remote(word: str) -> CheckpointSource:
    owner, _, rest = word.removeprefix(PREFIX).partition("/")
    plain = "/" not in rest and Path(rest).suffix not in ENDINGS
    if not rest or owner in ("", ".", "..", "~") or not (plain or word.startswith(PREFIX)):
        raise ModelError(
            f"'{word}' is no file, no folder, no hub id (owner/name) and none of the public banks "
            f"{', '.join(PUBLIC_BANKS)}. Check the spelling."
        )
    return CheckpointSource(_task_name(Path(rest)), f"{owner}/{rest}", is_remote=True)


def _task_name(path: Path) -> str:
    """`sun397` of `clip-vit-base-patch32_sun397/model.safetensors`, `Cars` of `CarsVal/finetuned.pt`."""
    stem = path.stem if path.suffix in ENDINGS else path.name
    named = path.parent.name if stem in PLAIN_STEMS and path.parent.name else stem
    return re.sub(r"^clip-vit-[a-z]+-patch\d+_", "", named).removesuffix("Val") or named
