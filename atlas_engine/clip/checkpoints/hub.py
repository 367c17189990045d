"""Checkpoints from the model hub, fetched once and kept by the hub's own client. Reads none of them.

    fetch("tanganke/clip-vit-base-patch32_sun397")          the weights file of a repository
    fetch("org/name/folder/finetuned.pt")                   one file in it

The hub is asked once, briefly: where it cannot be reached, what was fetched earlier is still found.
"""

from __future__ import annotations

from pathlib import Path

from atlas_engine.clip.models import first_line, hub_answers
from atlas_engine.errors import HubError, ModelError

__all__ = ["PREFIX", "fetch"]

PREFIX = "hf-hub:"
WEIGHTS = (
    "model.safetensors",
    "open_clip_model.safetensors",
    "pytorch_model.bin",
    "open_clip_pytorch_model.bin",
)
BESIDE = ("config.json", "README.md")  # what is known of the weights: not needed, and asked for last


def fetch(source: str) -> Path:
    """The weights file that a hub id stands for, on this machine."""
    owner, _, rest = source.removeprefix(PREFIX).partition("/")
    name, _, inside = rest.partition("/")
    if not owner or not name:
        raise ModelError(f"'{source}' is no hub id. Write it as owner/name, or owner/name/path/to/file.pt.")
    repository, files = f"{owner}/{name}", (inside,) if inside else WEIGHTS
    path = _cached(repository, files)
    if path is None:
        if not hub_answers():
            raise HubError(
                f"'{source}' is not on this machine, and the model hub cannot be reached. Connect to the "
                "internet and try again, or fetch the files elsewhere and give their folder."
            )
        path = _downloaded(repository, files)
    return path


def _cached(repository: str, files: tuple[str, ...]) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    for file in files:
        found = try_to_load_from_cache(repository, file)
        if isinstance(found, str):
            return Path(found)
    return None


def _downloaded(repository: str, files: tuple[str, ...]) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    try:
        for file in files:
            try:
                path = Path(hf_hub_download(repository, file, endpoint=constants.ENDPOINT))
            except EntryNotFoundError:
                continue
            for note in BESIDE:
                _fetch_note(repository, note)
            return path
    except Exception as error:  # the client's errors share no root: refusals, time-outs, a full disk
        raise ModelError(f"'{repository}' cannot be fetched: {first_line(error)}") from error
    raise ModelError(f"'{repository}' holds no weights file. Looked for: {', '.join(files)}.")


def _fetch_note(repository: str, file: str) -> None:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError

    try:
        hf_hub_download(repository, file, endpoint=constants.ENDPOINT)
    except EntryNotFoundError:
        return
