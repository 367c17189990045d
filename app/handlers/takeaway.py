"""Files and lines to take away: the recipe, the weights, how to make them again. Knows nothing of Gradio."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import atlas_engine as atlas
from app import roll_text, text
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import SampleFile, read_samples
from app.handlers.teach import compared
from app.limits import LIMITS
from app.state import SavedResult

__all__ = [
    "SHIPPED",
    "Origin",
    "bank_lines",
    "command_lines",
    "load_recipe",
    "model_flags",
    "origin_of",
    "python_lines",
    "save_recipe",
    "save_weights",
]

ENDING = ".atlas.safetensors"
BANK = "bank.safetensors"
TOWER = "visual."


@dataclass(frozen=True)
class Origin:
    """What a recipe was made with: the model, none for the one that ships; the public bank, if it is one."""

    model: str = ""
    public: str = ""  # as `atlas bank import` calls it
    storage: str = ""


SHIPPED = Origin()


def origin_of(engine: atlas.Atlas, *, bundled: str | None) -> Origin:
    """The model and bank that answer now; `bundled` is the model whose bank ships, if this page has it."""
    model = engine.backbone.name
    if model == bundled:
        return SHIPPED
    file = engine.bank_path.name if engine.bank_path is not None else ""
    public = {offer.file: offer for offer in atlas.available_models() if offer.file}.get(file)
    return Origin(model) if public is None else Origin(model, Path(file).stem, engine.bank.storage)


def save_recipe(recipe: atlas.Recipe, folder: Path) -> str:
    """The recipe as a file in `folder`, named after its classes."""
    path = folder / f"{_slug(recipe.classes)}{ENDING}"
    recipe.save(path)
    return str(path)


def load_recipe(
    engine: atlas.Atlas, path: str, samples: Sequence[SampleFile]
) -> tuple[SavedResult, tuple[str, ...]]:
    """A recipe that a visitor brings, tried on the samples; a kind refusal if it is for another bank."""
    name = Path(path).name
    try:
        recipe = atlas.Recipe.load(path)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(str(error).replace(path, name)) from None
    try:
        recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(f"{name}: {error}") from None
    if len(recipe.classes) > LIMITS.classes:  # each is read by the text tower, while everybody else waits
        raise atlas.AtlasError(text.many_recipe_classes(name, len(recipe.classes)))
    shown, refused = read_samples(samples, recipe.classes)
    kept = SavedResult(recipe, text.BROUGHT, samples=shown, comparison=compared(engine, recipe, shown))
    return kept, refused


def save_weights(engine: atlas.Atlas, recipe: atlas.Recipe, folder: Path) -> str:
    """The adapted image tower's weights as a safetensors file in `folder`, under open_clip's names.

    Where no block moved it is the base model's, and refused: what was learned, if anything, is the head.
    """
    if not bool(recipe.coefficients.values.any()):
        raise atlas.AtlasError(text.NO_BLOCK_MOVED)
    path = folder / f"{_slug(recipe.classes)}-image-tower.safetensors"
    base = {TOWER + name: tensor for name, tensor in engine.backbone.visual.state_dict().items()}
    atlas.export(path, state=base, theta=dict(engine.adapted(recipe).named_parameters()))
    return str(path)


def python_lines(kept: SavedResult, *, origin: Origin = SHIPPED) -> str:
    """Python that uses this very recipe and, where it was learned here, makes it again from the pictures."""
    name = f"{_slug(kept.recipe.classes)}{ENDING}"
    lines = [
        *(["from pathlib import Path", ""] if isinstance(kept.choices, RollChoices) else []),
        "import atlas_engine as atlas",
        "",
        *_opening(origin),
        f'    recipe = atlas.Recipe.load("{name}")',
        '    print(engine.compare(["new.jpg"], recipe).adapted)',
    ]
    if kept.choices is not None:
        again = [*_notes(kept), *_again(kept.choices, kept.recipe.classes), f'result.save("{name}")']
        lines += ["", *(f"    {line}" for line in again)]
    return "\n".join(lines)


def command_lines(kept: SavedResult, *, origin: Origin = SHIPPED) -> str:
    """The same from a terminal."""
    name = f"{_slug(kept.recipe.classes)}{ENDING}"
    made: list[str] = []
    if kept.choices is not None:
        learned = f"{_command(kept.choices, kept.recipe.classes)}{model_flags(origin)} -o {name}"
        made = [*bank_lines(origin), *_notes(kept), learned]
    return "\n".join([*made, f"atlas show {name}"])


def model_flags(origin: Origin) -> str:
    """What tells a command the model and its bank."""
    return f" --model {shlex.quote(origin.model)} --bank {BANK}" if origin.model else ""


def bank_lines(origin: Origin) -> list[str]:
    """How the bank's file comes about, where a command needs one."""
    if origin.public:
        return [f"atlas bank import {origin.public} --storage {origin.storage} -o {BANK}"]
    return [f"# {text.BANK_COMMENT}"] if origin.model else []


def _opening(origin: Origin) -> list[str]:
    """Python that opens the model with the bank that the recipe was made with."""
    if origin.public:
        return [
            f"*_, ready = atlas.prepare({origin.model!r})  # {text.PREPARE_COMMENT}",
            "with ready.engine as engine:",
        ]
    if origin.model:
        return [f"# {text.BANK_COMMENT}", f'with atlas.open({origin.model!r}, bank="{BANK}") as engine:']
    return ["with atlas.open() as engine:"]


def _notes(kept: SavedResult) -> list[str]:
    """A line for a result that ended early, which nobody can stop at the same moment again."""
    return [f"# {text.STOPPED_COMMENT}"] if kept.stopped else []


def _again(chosen: Choices | RollChoices, classes: Sequence[str]) -> list[str]:
    """Python that learns the same again."""
    if isinstance(chosen, RollChoices):
        return [
            f"# {roll_text.AGAIN_COMMENT}",
            'photos = sorted(Path("my_photos").iterdir(), key=lambda path: atlas.natural_key(path.name))',
            f'result = engine.test_time(photos, {list(classes)!r}, objective="{chosen.objective}", '
            f"seed={chosen.seed}).result()",
        ]
    return [
        f"# {text.AGAIN_COMMENT}",
        'support = atlas.Support.from_folder("my_pictures")',
        f"config = atlas.FewShotConfig(steps={chosen.config.steps}, lr={chosen.config.lr})",
        f'result = engine.few_shot(support, method="{chosen.method}", config=config, '
        f"seed={chosen.seed}).result()",
    ]


def _command(chosen: Choices | RollChoices, classes: Sequence[str]) -> str:
    """The command that learns the same again, with the flags that are not as usual."""
    if isinstance(chosen, RollChoices):
        usual = RollChoices()
        flags = _flags(("objective", chosen.objective, usual.objective), ("seed", chosen.seed, usual.seed))
        return f"atlas adapt test-time my_photos --classes {shlex.quote(','.join(classes))}{flags}"
    plain = Choices()
    flags = _flags(
        ("method", chosen.method, plain.method),
        ("steps", chosen.config.steps, plain.steps),
        ("lr", chosen.lr, plain.lr),
        ("seed", chosen.seed, plain.seed),
    )
    return f"atlas adapt few-shot my_pictures{flags}"


def _flags(*told: tuple[str, object, object]) -> str:
    return "".join(f" --{flag} {value}" for flag, value, usual in told if value != usual)


def _slug(classes: Sequence[str]) -> str:
    """A file name of plain letters from the first classes: `otter-seal-walrus`."""
    words = (re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:20] for name in classes[:3])
    return "-".join(word for word in words if word) or "recipe"
