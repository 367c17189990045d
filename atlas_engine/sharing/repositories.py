"""Write recipes and banks to repositories on the hub, and read them back.

    push(recipe, "owner/otters")                 # a recipe, a bank, or the path of either
    load("owner/otters")                         # Recipe, or TaskVectorBank
    load("mine.atlas.safetensors")               # the same of a file

A repository holds one of the two under a fixed name, and its card. What is fetched is compared with the
sha256 that the hub announces, and read as any file of strangers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import BANK_FORMAT, load_bank, save_bank
from atlas_engine.clip.hub import OnBytes, fetch_files, find_fetched, is_hub_reachable, list_repository
from atlas_engine.clip.models import hub_repository_of
from atlas_engine.errors import HubError, ModelError, RecipeError
from atlas_engine.recipe import Recipe
from atlas_engine.sharing.cards import bank_card, recipe_card
from atlas_engine.upload import check_repository_name, push_files

__all__ = ["BANK_FILE", "CARD", "RECIPE_FILE", "fetch", "load", "push"]

RECIPE_FILE, BANK_FILE, CARD = "recipe.atlas.safetensors", "bank.safetensors", "README.md"


def push(
    what: Recipe | TaskVectorBank | Path | str,
    repository: str,
    *,
    private: bool = True,
    token: str | None = None,
    sentence: str = "",
    measured: Sequence[str] = (),
) -> str:
    """The web address of the repository, after a recipe or a bank was written to it with its card.

    `sentence` and `measured` say on a recipe's card how well it does. The repository is private unless
    `private=False`. The token is the one that the hub's client finds, unless one is given.
    """
    check_repository_name(repository)
    item = what if isinstance(what, (Recipe, TaskVectorBank)) else _read(Path(what))
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(item, Recipe):
            path, card = Path(folder) / RECIPE_FILE, _recipe_card(item, repository, sentence, measured)
            item.save(path)
        else:
            path, card = Path(folder) / BANK_FILE, _bank_card(item, repository)
            save_bank(item, path)
        files: dict[str, bytes | Path] = {path.name: path, CARD: card.encode()}
        return push_files(
            repository, files, message=f"Push a {_kind(item)} with aTLAS Studio", private=private, token=token
        )


def load(name: Path | str, *, on_bytes: OnBytes | None = None) -> Recipe | TaskVectorBank:
    """The recipe or the bank in a repository on the hub ("owner/name"), or in a file."""
    return _read(fetch(name, on_bytes=on_bytes))


def fetch(name: Path | str, *, on_bytes: OnBytes | None = None) -> Path:
    """The path of the file: the one given, or that of a repository, fetched unless this machine has it."""
    path = Path(name)
    if path.is_file():
        return path
    if path.suffix == ".safetensors":
        raise RecipeError(f"there is no file '{name}'. Check the path.")
    repository = check_repository_name(str(name))
    wanted = (RECIPE_FILE, BANK_FILE)
    if not is_hub_reachable():
        found = find_fetched(repository, wanted)
        if found is None:
            raise HubError(
                f"'{repository}' is not on this machine, and the model hub cannot be reached. Connect to the "
                "internet and try again, or give a file."
            )
        return found
    try:
        held = list_repository(repository)
    except ModelError as error:
        raise ModelError(
            f"{error} Check the name; a private repository needs `hf auth login`, or HF_TOKEN."
        ) from error
    file = next((held[one] for one in wanted if one in held), None)
    if file is None:
        raise ModelError(
            f"'{repository}' holds neither {RECIPE_FILE} nor {BANK_FILE}. Give one that `atlas push` wrote."
        )
    return fetch_files([file], on_bytes=on_bytes)


def _read(path: Path) -> Recipe | TaskVectorBank:
    """The recipe or the bank in a file, by the format that its header names."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as opened:
            is_bank = (opened.metadata() or {}).get("format") == BANK_FORMAT
    except (SafetensorError, OSError):
        is_bank = False  # reading it as a recipe will say what is wrong with it
    return load_bank(path) if is_bank else Recipe.load(path)


def _recipe_card(recipe: Recipe, repository: str, sentence: str, measured: Sequence[str]) -> str:
    base = hub_repository_of(recipe.model)
    return recipe_card(recipe, repository=repository, sentence=sentence, measured=measured, base_model=base)


def _bank_card(bank: TaskVectorBank, repository: str) -> str:
    models = {info.provenance.get("model", "") for info in bank.infos}
    base = hub_repository_of(models.pop()) if len(models) == 1 else None
    return bank_card(bank, repository=repository, base_model=base)


def _kind(item: Recipe | TaskVectorBank) -> str:
    return "recipe" if isinstance(item, Recipe) else "bank"
