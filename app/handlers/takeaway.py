"""Files and lines to take away: the recipe, the weights, how to make them again. Knows nothing of Gradio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.handlers.choices import Choices
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
    try:
        recipe = atlas.Recipe.load(path)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(str(error).replace(path, Path(path).name)) from None
    recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)
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
        "import atlas_engine as atlas",
        "",
        f"with {opened} as engine:",
        f'    recipe = atlas.Recipe.load("{name}")',
        '    print(engine.compare(["new.jpg"], recipe).adapted)',
    ]
    if kept.choices is not None:
        chosen = kept.choices
        lines += [
            "",
            f"    # {text.AGAIN_COMMENT}",
            '    support = atlas.Support.from_folder("my_pictures")',
            f"    config = atlas.FewShotConfig(steps={chosen.config.steps}, lr={chosen.config.lr:g})",
            f'    result = engine.few_shot(support, method="{chosen.method}", config=config, '
            f"seed={chosen.seed}).result()",
            f'    result.save("{name}")',
        ]
    return "\n".join(lines)


def command_lines(kept: Kept) -> str:
    """The same from a terminal."""
    name = f"{_slug(kept.recipe.classes)}{ENDING}"
    lines = [f"atlas show {name}"]
    if kept.choices is not None:
        chosen, plain = kept.choices, Choices()
        flags = "".join(
            f" --{flag} {value}"
            for flag, value, usual in (
                ("method", chosen.method, plain.method),
                ("steps", chosen.config.steps, plain.steps),
                ("lr", f"{chosen.lr:g}", f"{plain.lr:g}"),
                ("seed", chosen.seed, plain.seed),
            )
            if value != usual
        )
        lines.insert(0, f"atlas adapt few-shot my_pictures{flags} -o {name}")
    return "\n".join(lines)


def _slug(classes: Sequence[str]) -> str:
    """A file name of plain letters from the first classes: `otter-seal-walrus`."""
    words = (re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:20] for name in classes[:3])
    return "-".join(word for word in words if word) or "recipe"
