"""The model hub: what a repository holds, how much of it is still to come, and files that arrive whole.

    files = files_to_fetch("owner/name", ("model.safetensors", "pytorch_model.bin"), beside=("config.json",))
    sum(file.nbytes for file in files)                       # asked of the hub in one request
    path = fetch_files(files)                                # of the first; each compared with its sha256

Fetched files are kept by the hub's own client, which also resumes after a lost connection. The hub is probed
with a short time-out before anything is asked of it; if it cannot be reached, files that were fetched before
are still found.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atlas_engine.errors import ModelError
from atlas_engine.files import human_nbytes, sha256_of

__all__ = [
    "HUB_PREFIX",
    "HubFile",
    "OnBytes",
    "fetch_files",
    "files_to_fetch",
    "find_fetched",
    "first_line",
    "is_hub_reachable",
    "list_repository",
]

HUB_PREFIX = "hf-hub:"
PROBE_SECONDS = 5.0

OnBytes = Callable[[int], None]
"""Called with a number of bytes as they arrive; negative where the client starts a file again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HubFile:
    """A file of a repository on the hub; `sha256` is None where the hub announces none (small text files)."""

    repository: str
    name: str
    nbytes: int
    sha256: str | None = None

    def __str__(self) -> str:
        return f"{self.name} of '{self.repository}' ({human_nbytes(self.nbytes)})"


def files_to_fetch(
    repository: str, names: Sequence[str], *, beside: Sequence[str] = ()
) -> tuple[HubFile, ...]:
    """The first of `names` that the repository has, then all of `beside` that it has; asked in one request.

    Empty if one of `names` is already on this machine.
    """
    if find_fetched(repository, names) is not None:
        return ()
    held = list_repository(repository)
    wanted = next((name for name in names if name in held), None)
    if wanted is None:
        raise ModelError(f"'{repository}' holds no weights file. Looked for: {', '.join(names)}.")
    return tuple(held[name] for name in (wanted, *beside) if name in held)


def fetch_files(files: Sequence[HubFile], *, on_bytes: OnBytes | None = None) -> Path:
    """The path of the first file, after all are fetched; one that is not as announced is deleted."""
    first, *_ = [_fetch_file(file, on_bytes) for file in files]
    return first


def find_fetched(repository: str, names: Sequence[str]) -> Path | None:
    """The path of the first of `names` that was fetched before; None if none was."""
    from huggingface_hub import try_to_load_from_cache

    for name in names:
        found = try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    return None


def is_hub_reachable() -> bool:
    """Whether the model hub answers within a few seconds; False at once in offline mode."""
    import httpx
    from huggingface_hub import constants

    if constants.is_offline_mode():
        return False
    try:
        httpx.head(constants.ENDPOINT, timeout=PROBE_SECONDS)
    except httpx.HTTPError as error:
        _log.info("the model hub does not answer: %s", type(error).__name__)
        return False
    return True


def list_repository(repository: str) -> dict[str, HubFile]:
    """The files of a repository by name, asked of the hub in one request."""
    from huggingface_hub import HfApi, constants

    try:
        info = HfApi(endpoint=constants.ENDPOINT).model_info(repository, files_metadata=True)
    except Exception as error:  # the client's errors share no base class: refusals, time-outs
        raise ModelError(f"'{repository}' cannot be fetched: {first_line(error)}") from error
    return {
        file.rfilename: HubFile(
            repository, file.rfilename, file.size or 0, file.lfs.sha256 if file.lfs is not None else None
        )
        for file in info.siblings or ()
    }


def _fetch_file(file: HubFile, on_bytes: OnBytes | None) -> Path:
    from huggingface_hub import constants, hf_hub_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    try:
        fetched = hf_hub_download(
            file.repository,
            file.name,
            endpoint=constants.ENDPOINT,
            tqdm_class=None if on_bytes is None else _byte_counter(on_bytes),
        )
    except Exception as error:  # the client's errors share no base class: refusals, time-outs, a full disk
        raise ModelError(f"'{file.repository}' cannot be fetched: {first_line(error)}") from error
    path = Path(fetched)
    _require_announced(file, path)
    return path


def _require_announced(file: HubFile, path: Path) -> None:
    """Delete a file whose sha256 is not the announced one, and raise: the client compares sizes alone."""
    found = None if file.sha256 is None else sha256_of(path)
    if found == file.sha256:
        return
    for copy in {path, path.resolve()}:  # a link in the snapshot, and the file that it leads to
        copy.unlink(missing_ok=True)
    raise ModelError(
        f"{file} arrived with sha256 {str(found)[:12]}…, but the hub announced {str(file.sha256)[:12]}…: it "
        "was damaged on the way, and is deleted. Try again; if it happens again, do not use this repository."
    )


def _byte_counter(on_bytes: OnBytes) -> Any:  # noqa: ANN401 - stands where the client wants a class of tqdm
    """A class that the client takes for a progress bar: it draws nothing and hands the bytes on."""

    class ByteCounter:
        def __init__(self, **_: object) -> None:
            return

        def __enter__(self) -> ByteCounter:
            return self

        def __exit__(self, *_: object) -> None:
            return

        def update(self, count: float = 1) -> None:
            on_bytes(int(count))

        def update_transfer(self, _count: float) -> None:
            """Take no notice: these are the same bytes, before they are unpacked."""

        def set_postfix_str(self, *_: object, **__: object) -> None:
            return

        set_transfer_postfix_str = set_postfix_str

    return ByteCounter


def first_line(error: Exception) -> str:
    """The first line of an error's message, as a sentence."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".") + "."
