"""Where checkpoints come from: files, folders, the model hub, and the known public banks.

    find_sources(["tanganke-b32"])                          # the twenty checkpoints of a public bank
    find_sources(["runs/", "cars=old/finetuned.pt"])        # all below a folder, and one under a given name
    find_sources(["owner/name"])                            # a repository on the hub

    fetch_from_hub("tanganke/clip-vit-base-patch32_sun397") # path of the weights file of a repository
    fetch_from_hub("org/name/folder/finetuned.pt")          # path of one file in it
    nbytes_to_fetch(find_sources(["tanganke-b32"]))         # what the hub will send for them

How files are fetched and checked is in `clip.hub`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from atlas_engine.clip.checkpoints.checkpoint import ENDINGS
from atlas_engine.clip.checkpoints.public import PUBLIC_BANKS
from atlas_engine.clip.hub import (
    HUB_PREFIX,
    HubFile,
    OnBytes,
    fetch_files,
    files_to_fetch,
    find_fetched,
    is_hub_reachable,
)
from atlas_engine.errors import HubError, ModelError

__all__ = ["CheckpointSource", "fetch_from_hub", "find_sources", "nbytes_to_fetch"]

GENERIC_STEMS = frozenset(
    {"model", "pytorch_model", "open_clip_model", "open_clip_pytorch_model", "checkpoint", "weights"}
    | {"finetuned", "nonlinear_finetuned", "adapter_model"}
)
"""File names that do not name the task: the folder's name does."""

NO_CHECKPOINT = re.compile(r"^(zeroshot|head_|optimizer|scheduler|rng_state|training_args)")
"""Files that lie among fine-tuned checkpoints and are none."""

HUB_WEIGHTS = (
    "model.safetensors",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
    "adapter_model.safetensors",
    "adapter_model.bin",
)
HUB_SIDECARS = ("config.json", "adapter_config.json", "README.md")  # optional, and fetched last


@dataclass(frozen=True)
class CheckpointSource:
    """One checkpoint: the name of its task vector, and a path or a hub id."""

    name: str
    where: str
    is_remote: bool = False


def find_sources(words: Sequence[Path | str]) -> list[CheckpointSource]:
    """The checkpoints that `words` stand for, in order; two of the same name are refused.

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
        return _public_sources(word)
    if path.is_dir():
        return _folder_sources(path)
    return [CheckpointSource(_task_name(path), str(path)) if path.is_file() else _hub_source(word)]


def _public_sources(name: str) -> list[CheckpointSource]:
    bank = PUBLIC_BANKS[name]
    if not bank.checkpoints:
        raise ModelError(f"the bank '{name}' cannot be fetched file by file: {bank.about}.")
    return [CheckpointSource(task, hub_id, is_remote=True) for task, hub_id in bank.checkpoints.items()]


def _folder_sources(folder: Path) -> list[CheckpointSource]:
    files = sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and path.is_file())
    checkpoints = [path for path in files if not NO_CHECKPOINT.match(path.name)]
    if not checkpoints:
        raise ModelError(f"{folder} holds no checkpoint. One ends in {', '.join(ENDINGS)}.")
    return [CheckpointSource(_task_name(path), str(path)) for path in checkpoints]


def _hub_source(word: str) -> CheckpointSource:
    owner, _, rest = word.removeprefix(HUB_PREFIX).partition("/")
    is_repository = "/" not in rest and Path(rest).suffix not in ENDINGS
    if not rest or owner in ("", ".", "..", "~") or not (is_repository or word.startswith(HUB_PREFIX)):
        raise ModelError(
            f"'{word}' is no file, no folder, no hub id (owner/name) and none of the public banks "
            f"{', '.join(PUBLIC_BANKS)}. Check the spelling."
        )
    return CheckpointSource(_task_name(Path(rest)), f"{owner}/{rest}", is_remote=True)


def _task_name(path: Path) -> str:
    """`sun397` of `clip-vit-base-patch32_sun397/model.safetensors`, `Cars` of `CarsVal/finetuned.pt`."""
    stem = path.stem if path.suffix in ENDINGS else path.name
    name = path.parent.name if stem in GENERIC_STEMS and path.parent.name else stem
    return re.sub(r"^clip-vit-[a-z]+-patch\d+_", "", name).removesuffix("Val") or name


# ---- The model hub.


def fetch_from_hub(hub_id: str, *, on_bytes: OnBytes | None = None) -> Path:
    """The path of the weights file that a hub id names, fetched if it is not on this machine yet."""
    repository, names = _repository_files(hub_id)
    path = find_fetched(repository, names)
    if path is not None:
        return path
    if not is_hub_reachable():
        raise HubError(
            f"'{hub_id}' is not on this machine, and the model hub cannot be reached. Connect to the "
            "internet and try again, or fetch the files elsewhere and give their folder."
        )
    return fetch_files(_files_of(hub_id), on_bytes=on_bytes)


def nbytes_to_fetch(sources: Sequence[CheckpointSource]) -> int:
    """How many bytes the hub will send for these checkpoints: those that are not on this machine yet.

    Each repository is one request. 0 if the hub cannot be reached: `fetch_from_hub` says so.
    """
    remote = [source.where for source in sources if source.is_remote]
    missing = [hub_id for hub_id in remote if find_fetched(*_repository_files(hub_id)) is None]
    if not missing or not is_hub_reachable():
        return 0
    return sum(file.nbytes for hub_id in missing for file in _files_of(hub_id))


def _files_of(hub_id: str) -> tuple[HubFile, ...]:
    """The weights file, and the model card and configs that belong to it."""
    return files_to_fetch(*_repository_files(hub_id), beside=HUB_SIDECARS)


def _repository_files(hub_id: str) -> tuple[str, tuple[str, ...]]:
    """The repository of a hub id, and the names that its weights file may have."""
    owner, _, rest = hub_id.removeprefix(HUB_PREFIX).partition("/")
    name, _, inside = rest.partition("/")
    if not owner or not name:
        raise ModelError(f"'{hub_id}' is no hub id. Write it as owner/name, or owner/name/path/to/file.pt.")
    return f"{owner}/{name}", (inside,) if inside else HUB_WEIGHTS
