"""Files to a repository on the model hub, in one commit: all of them or none.

    address = push_files("owner/name", {"README.md": card.encode(), "bank.safetensors": path})

The token is the one that the hub's client finds (HF_TOKEN, or `hf auth login`), unless one is given. It goes
to the client alone: no message, log or file of ours holds it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from atlas_engine.errors import ConfigError, HubError

__all__ = ["check_repository_name", "push_files"]

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}"
REFUSED = (401, 403)  # status codes of the hub: no token, or one that may not write there


def check_repository_name(repository: str) -> str:
    """The name, if it is of the form owner/name; a `ConfigError` otherwise."""
    if not re.fullmatch(f"{NAME}/{NAME}", repository):
        raise ConfigError(
            f"'{repository}' is not the name of a repository on the hub. Give it as owner/name, such as "
            "jane/otters, in letters, digits, '-', '_' and '.'."
        )
    return repository


def push_files(
    repository: str,
    files: Mapping[str, bytes | Path],
    *,
    message: str,
    private: bool = True,
    token: str | None = None,
) -> str:
    """The web address of the repository, after its files were written in one commit.

    The repository is made if there is none, private unless `private=False`; one that is there keeps its
    visibility.
    """
    check_repository_name(repository)
    from huggingface_hub import CommitOperationAdd, HfApi, constants
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    client = HfApi(endpoint=constants.ENDPOINT, token=token)
    additions = [
        CommitOperationAdd(name, content if isinstance(content, bytes) else str(content))
        for name, content in files.items()
    ]
    try:
        client.create_repo(repository, private=private, exist_ok=True)
        client.create_commit(repository, additions, commit_message=message)
    except Exception as error:  # the client's errors share no base class: refusals, time-outs, a lost network
        raise HubError(_explain(repository, error, token)) from None  # a chained error may show the request
    return f"{constants.ENDPOINT}/{repository}"


def _explain(repository: str, error: Exception, token: str | None) -> str:
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in REFUSED:
        return (
            f"the hub does not let you write to '{repository}' ({status}). Log in with `hf auth login`, or "
            "set HF_TOKEN to a token that may write there."
        )
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[0][:200].replace(token, "…") if token else lines[0][:200]
    return (
        f"'{repository}' cannot be written to the hub: {reason.rstrip('.')}. Nothing was changed; try again."
    )
