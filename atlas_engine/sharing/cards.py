"""The README of a repository on the hub: what it holds, how well it does, how it was made and runs.

    recipe_card(recipe, repository="owner/otters", measured=("text-probe 91 % (71 to 98 %, 20 images)",))

The front matter follows the hub's conventions. What is not known is said to be unknown, never guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import find_banks_for
from atlas_engine.bank.blocks import BlockTable
from atlas_engine.bank.vector import VectorInfo
from atlas_engine.config import assets_folder
from atlas_engine.recipe import Recipe

__all__ = ["LICENCE", "bank_card", "find_licences", "recipe_card"]

LIBRARY = "atlas-studio"
LICENCE = "other"  # the hub's word for terms that the card tells
LISTED_CLASSES = 100
UNKNOWN = "not recorded"
LICENCE_KEYS = ("licence", "license")  # in a vector's provenance


def recipe_card(
    recipe: Recipe,
    *,
    repository: str,
    sentence: str = "",
    measured: Sequence[str] = (),
    base_model: str | None = None,
) -> str:
    """The card of a recipe. `measured` are held-out accuracies with their intervals, a line each."""
    head = {
        "library_name": LIBRARY,
        "pipeline_tag": "image-classification",
        "license": LICENCE,
        **({"base_model": base_model, "base_model_relation": "adapter"} if base_model else {}),
        "tags": ["few-shot", "image-classification", "task-vectors", "atlas"],
    }
    classes, count = recipe.classes, len(recipe.classes)
    names = ", ".join(map(_escape, classes[:LISTED_CLASSES]))
    more = f" and {count - LISTED_CLASSES} more" if count > LISTED_CLASSES else ""
    used = recipe.coefficients.values.flatten(1).any(dim=1).tolist()
    tasks = [task for task, uses in zip(recipe.coefficients.tasks, used, strict=True) if uses]
    return _page(
        head,
        f"# {_title(repository)}",
        f"An image classifier of {count} classes: a recipe for aTLAS Studio that rebuilds an adapted CLIP "
        "from its base model and a bank of task vectors ([the method](https://arxiv.org/abs/2407.02880)). "
        "It holds coefficients and a head, no image and no weights of the base model.",
        f"**Classes:** {names}{more}.",
        "## Held-out accuracy",
        _escape(sentence),
        _bullets(measured)
        or "Not recorded: the recipe was pushed from a file, which does not hold its measurements.",
        "## Made from",
        _bullets(
            (
                f"base model: {_escape(recipe.model)} (fingerprint `{recipe.model_fingerprint[:12]}`)",
                f"method: {_escape(recipe.method or 'coefficients')}, seed {recipe.seed}",
                f"bank: `{recipe.bank_fingerprint[:12]}`",
                f"software: {', '.join(f'{name} {version}' for name, version in recipe.versions.items())}",
            )
        ),
        "## Task vectors and their licences",
        _licence_table(tasks, find_licences(tasks, recipe.coefficients.blocks))
        or "It uses no task vector: what was learned is the head alone.",
        "## How to run it",
        _python(
            "with atlas.open() as engine:  # or atlas.open(MODEL, bank=FILE)",
            f'    recipe = atlas.load("{repository}")',
            '    print(engine.compare(["new.jpg"], recipe).adapted)',
        ),
        f"`atlas pull {repository} -o recipe.atlas.safetensors` fetches the file alone.",
    )


def bank_card(bank: TaskVectorBank, *, repository: str, base_model: str | None = None) -> str:
    """The card of a bank of task vectors."""
    head = {
        "library_name": LIBRARY,
        "license": LICENCE,
        **({"base_model": base_model} if base_model else {}),
        "tags": ["task-vectors", "task-arithmetic", "atlas"],
    }
    models = sorted({info.provenance.get("model", "") for info in bank.infos} - {""})
    licences = find_licences(bank.tasks, bank.blocks)
    rows = []
    for task, info in zip(bank.tasks, bank.infos, strict=True):
        licence = _licence(info) or licences.get(task, UNKNOWN)
        accuracies = f"{_percent(info.accuracy_before)} | {_percent(info.accuracy_after)}"
        rows.append(f"| {_escape(task)} | {accuracies} | {licence} |")
    return _page(
        head,
        f"# {_title(repository)}",
        f"{len(bank.tasks)} task vectors over {len(bank.blocks)} blocks, stored as {bank.storage}, for aTLAS "
        "Studio. A task vector is what fine-tuning changed in the image tower of CLIP.",
        "## Made from",
        _bullets(
            (
                f"base model: {_escape(', '.join(models) or UNKNOWN)} (fingerprint `{bank.base[:12]}`)",
                f"bank fingerprint: `{bank.fingerprint[:12]}`",
            )
        ),
        "## Its vectors",
        "| vector | before, % | after, % | licence of the images |\n|---|---|---|---|\n" + "\n".join(rows),
        "Accuracies are those of held-out images before and after the fine-tuning, where they were recorded.",
        "## How to run it",
        _python(
            f'bank = atlas.load("{repository}")',
            "with atlas.open() as engine:  # the model that it was made for",
            '    run = engine.few_shot(atlas.Support.from_folder("my_photos"), bank=bank)',
        ),
    )


def find_licences(tasks: Sequence[str], blocks: BlockTable) -> dict[str, str]:
    """The licence of the images behind each task vector, where a bank file on this machine records it.

    The bank that ships records them in the table of its README.
    """
    found: dict[str, str] = {}
    for bank in find_banks_for(blocks):
        if not set(tasks) <= set(bank.tasks):
            continue
        table = _shipped_licences() if bank.path.parent == assets_folder() / "bank" else {}
        pairs = zip(bank.tasks, bank.infos, strict=True)
        known = {task: _licence(info) or table.get(task, "") for task, info in pairs}
        found = {task: known[task] for task in tasks if known[task]} | found
    return found


def _shipped_licences() -> dict[str, str]:
    """The column of licences in assets/bank/README.md, by vector; empty where the page is not there."""
    path = assets_folder() / "bank" / "README.md"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    table = re.search(
        r"^\| vector \|.*\| licence of the pictures \|\n((?:\|.*\|\n)*)", text, flags=re.MULTILINE
    )
    rows = re.findall(r"^\| ([a-z0-9-]+) \|.*\| ([^|]+) \|$", table[1] if table else "", flags=re.MULTILINE)
    return dict(rows)


def _licence(info: VectorInfo) -> str:
    return _escape(next((info.provenance[key] for key in LICENCE_KEYS if key in info.provenance), ""))


def _licence_table(tasks: Sequence[str], licences: Mapping[str, str]) -> str:
    if not tasks:
        return ""
    rows = [f"| {_escape(task)} | {licences.get(task, UNKNOWN)} |" for task in tasks]
    return "| vector | licence of its images |\n|---|---|\n" + "\n".join(rows)


def _page(head: Mapping[str, object], *paragraphs: str) -> str:
    """Front matter and paragraphs; JSON values are YAML too."""
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()]
    return "\n".join(["---", *lines, "---", ""]) + "\n" + "\n\n".join(filter(None, paragraphs)) + "\n"


def _python(*lines: str) -> str:
    return "\n".join(["```python", "import atlas_engine as atlas", "", *lines, "```"])


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _title(repository: str) -> str:
    return repository.rpartition("/")[2]


def _escape(text: str) -> str:
    """Text of strangers, such as class names, as plain words of markdown on one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
