"""`atlas push FILE owner/name` and `atlas pull owner/name`: recipes and banks on the model hub."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from atlas_engine.cli.options import PATH, command, json_flag, writable
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar
from atlas_engine.files import atomic_write, human_nbytes

__all__ = ["pull", "push"]


@command("atlas push otters.atlas.safetensors jane/otters", "atlas push bank.safetensors jane/bank --public")
@click.argument("file", metavar="FILE", type=PATH, help="a recipe or a bank file")
@click.argument("repository", metavar="OWNER/NAME", help="the repository; it is made if there is none")
@click.option("--public", is_flag=True, help="let everybody read it (default: private)")
@json_flag
def push(*, file: Path, repository: str, public: bool, as_json: bool) -> None:
    """Write a recipe or a bank to the model hub.

    The repository gets a card that says what it is, what it is made from and how to run it. The token is the
    one of `hf auth login`, or HF_TOKEN.
    """
    from atlas_engine.sharing.repositories import push as push_item

    address = push_item(file, repository, private=not public)
    facts = {"repository": repository, "address": address, "private": not public}
    emit_json(facts) if as_json else emit(address)


@command(
    "atlas pull jane/otters -o otters.atlas.safetensors", "atlas pull jane/bank -o bank.safetensors --json"
)
@click.argument("repository", metavar="OWNER/NAME", help="a repository that `atlas push` wrote")
@click.option("-o", "--output", required=True, metavar="FILE", type=writable, help="the file to write")
@json_flag
def pull(*, repository: str, output: Path, as_json: bool) -> None:
    """Fetch a recipe or a bank from the model hub.

    The file is checked before it is written: its sha256 against the hub's, and its content as any recipe or
    bank of strangers.
    """
    from atlas_engine.sharing.repositories import fetch, load

    with ProgressBar(None, "fetching", in_bytes=True) as progress:
        path = fetch(repository, on_bytes=lambda nbytes: progress.advance(nbytes, repository))
    item = load(path)
    with atomic_write(output) as part:
        shutil.copyfile(path, part)
    if as_json:
        emit_json({"repository": repository, "file": str(output), "nbytes": output.stat().st_size})
        return
    emit(f"{output}  {human_nbytes(output.stat().st_size)}  {item!r}")
