"""Files and lines to take away: the recipe, the weights, how to make them again. Knows nothing of Gradio."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import atlas_engine as atlas
from app import roll_text, text
from app.handlers.choices import Choices, RollChoices
from app.handlers.lesson import Sample, read_samples
from app.handlers.teach import compared
from app.state import Kept

__all__ = ["command_lines", "load_recipe", "python_lines", "save_recipe", "save_weights"]

ENDING = ".atlas.safetensors"
TOWER = "visual."


def save_recipe(recipe: atlas.Recipe, folder: Path) -> str:
    """The recipe as a file in `folder`, named after its classes."""
    path = folder / f"{_slug(recipe.classes)}{ENDING}"
    recipe.save(path)
    return str(path)


def load_recipe(engine: atlas.Atlas, path: str, samples: Sequence[Sample]) -> tuple[Kept, tuple[str, ...]]:
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
    shown, refused = read_samples(samples, recipe.classes)
    kept = Kept(recipe, text.BROUGHT, samples=shown, comparison=compared(engine, recipe, shown))
    return kept, refused


def save_weights(engine: atlas.Atlas, recipe: atlas.Recipe, folder: Path) -> str:
    """The adapted image tower's weights as a safetensors file in `folder`, under open_clip's names."""
    path = folder / f"{_slug(recipe.classes)}-image-tower.safetensors"
    base = {TOWER + name: tensor for name, tensor in engine.backbone.visual.state_dict().items()}
    atlas.export(path, state=base, theta=dict(engine.adapted(recipe).named_parameters()))
    return str(path)


def python_lines(kept: Kept, *, bundled: bool) -> str:
    """Python that uses this very recipe and, where it was learned here, makes it again from the pictures."""
    name = f"{_slug(kept.recipe.classes)}{ENDING}"
    opened = "atlas.open()" if bundled else f'atlas.open({kept.recipe.model!r}, bank="bank.safetensors")'
    lines = [
        *(["from pathlib import Path", ""] if isinstance(kept.choices, RollChoices) else []),
        "import atlas_engine as atlas",
        "",
        f"with {opened} as engine:",
        f'    recipe = atlas.Recipe.load("{name}")',
        '    print(engine.compare(["new.jpg"], recipe).adapted)',
    ]
    if kept.choices is not None:
        again = [*_again(kept.choices, kept.recipe.classes), f'result.save("{name}")']
        lines += ["", *(f"    {line}" for line in again)]
    return "\n".join(lines)


def command_lines(kept: Kept) -> str:
    """The same from a terminal."""
    name = f"{_slug(kept.recipe.classes)}{ENDING}"
    lines = [f"atlas show {name}"]
    if kept.choices is not None:
        lines.insert(0, f"{_command(kept.choices, kept.recipe.classes)} -o {name}")
    return "\n".join(lines)


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
        f"config = atlas.FewShotConfig(steps={chosen.config.steps}, lr={chosen.config.lr:g})",
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
        ("lr", f"{chosen.lr:g}", f"{plain.lr:g}"),
        ("seed", chosen.seed, plain.seed),
    )
    return f"atlas adapt few-shot my_pictures{flags}"


def _flags(*told: tuple[str, object, object]) -> str:
    return "".join(f" --{flag} {value}" for flag, value, usual in told if value != usual)


def _slug(classes: Sequence[str]) -> str:
    """A file name of plain letters from the first classes: `otter-seal-walrus`."""
    words = (re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:20] for name in classes[:3])
    return "-".join(word for word in words if word) or "recipe"
