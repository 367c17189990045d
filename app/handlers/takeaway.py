"""Files and lines to take away: the recipe, the weights, and code that makes them again."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import SavedResult, compare_samples
from app.handlers.settings import FewShotSettings, UnlabelledSettings, check_sentences
from app.handlers.uploads import UploadedImage, read_samples
from app.limits import LIMITS

__all__ = [
    "SHIPPED",
    "ModelOrigin",
    "bank_commands",
    "check_recipe",
    "export_recipe",
    "fits",
    "load_recipe",
    "model_flags",
    "origin_of",
    "python_code",
    "save_recipe",
    "save_weights",
    "shell_commands",
]

RECIPE_ENDING = ".atlas.safetensors"
BANK_FILE = "bank.safetensors"
EXPORTED_FILES = {"onnx": "model.onnx", "html": "index.html"}  # formats whose one file is all that is needed
TOWER_PREFIX = "visual."  # of the image tower's weights in open_clip


@dataclass(frozen=True)
class ModelOrigin:
    """What a recipe was made with: the model ('' for the one that ships), and its bank if it is public."""

    model: str = ""
    public_bank: str = ""  # as `atlas bank import` calls it
    storage: str = ""


SHIPPED = ModelOrigin()


def origin_of(engine: atlas.Atlas, *, bundled: str | None) -> ModelOrigin:
    """The model and bank that answer now; `bundled` names the model whose bank ships, if this page has it."""
    model = engine.backbone.name
    if model == bundled:
        return SHIPPED
    file = engine.bank_path.name if engine.bank_path is not None else ""
    is_public = file != "" and file in {offer.file for offer in atlas.available_models()}
    return ModelOrigin(model, Path(file).stem, engine.bank.storage) if is_public else ModelOrigin(model)


# ---- files


def save_recipe(recipe: atlas.Recipe, folder: Path) -> str:
    """The path of the recipe, written to `folder` under a name made of its classes."""
    path = folder / _recipe_name(recipe)
    recipe.save(path)
    return str(path)


def load_recipe(
    engine: atlas.Atlas, path: str, samples: Sequence[UploadedImage]
) -> tuple[SavedResult, tuple[str, ...]]:
    """A recipe that a visitor brings, tried on the samples; and the sentences for samples left out.

    Raises an AtlasError that names the file where it is no recipe, or one for another model or bank.
    """
    name = Path(path).name
    try:
        recipe = atlas.Recipe.load(path)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(str(error).replace(path, name)) from None  # no folder of this machine
    check_recipe(recipe, engine, name=name)
    images, left_out = read_samples(samples, recipe.classes)
    comparison = compare_samples(engine, recipe, images)
    return SavedResult(recipe, text.result.BROUGHT, samples=images, comparison=comparison), left_out


def check_recipe(recipe: atlas.Recipe, engine: atlas.Atlas, *, name: str) -> None:
    """Refuse a recipe, called `name` here, for another model or bank, or with more to read than is taken."""
    try:
        _check_fit(recipe, engine)
    except atlas.AtlasError as error:
        raise atlas.AtlasError(f"{name}: {error}") from None
    if len(recipe.classes) > LIMITS.classes:  # each is read by the text tower, while everybody else waits
        raise atlas.AtlasError(text.takeaway.many_recipe_classes(name, len(recipe.classes)))
    check_sentences(recipe.classes, recipe.templates)


def save_weights(engine: atlas.Atlas, recipe: atlas.Recipe, folder: Path) -> str:
    """The path of the adapted image tower's weights, written to `folder` under open_clip's names.

    Where no block moved they are the base model's, and refused: what was learned, if anything, is the head.
    """
    if not bool(recipe.coefficients.values.any()):
        raise atlas.AtlasError(text.takeaway.NO_BLOCK_MOVED)
    path = folder / f"{_file_stem(recipe.classes)}-image-tower.safetensors"
    base = {TOWER_PREFIX + name: tensor for name, tensor in engine.backbone.visual.state_dict().items()}
    atlas.export(path, state=base, theta=dict(engine.adapted(recipe).named_parameters()))
    return str(path)


def export_recipe(
    engine: atlas.Atlas, recipe: atlas.Recipe, folder: Path, *, format: str, int8: bool = False
) -> str:
    """The path of one file in `folder`: the model as `onnx` or `html`, or a zip in other formats.

    Raises an AtlasError that says what to do where the format is not known, does not fit the model, or needs
    a package that this server lacks.
    """
    stem = _file_stem(recipe.classes)
    written = engine.export(recipe, folder / f"{stem}-{format}", format=format, int8=int8)
    main_file = EXPORTED_FILES.get(format)
    if main_file is None:
        return shutil.make_archive(str(written.folder), "zip", written.folder)
    path = folder / f"{stem}{Path(main_file).suffix}"
    (written.folder / main_file).replace(path)
    return str(path)


def fits(recipe: atlas.Recipe, engine: atlas.Atlas) -> bool:
    """Whether the recipe was made with this engine's model and bank."""
    try:
        _check_fit(recipe, engine)
    except atlas.AtlasError:
        return False
    return True


def _check_fit(recipe: atlas.Recipe, engine: atlas.Atlas) -> None:
    recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)


# ---- lines to copy


def python_code(result: SavedResult, *, origin: ModelOrigin = SHIPPED) -> str:
    """Python that uses this very recipe and, where it was learned here, makes it again from the images."""
    name = _recipe_name(result.recipe)
    lines = [
        *(["from pathlib import Path", ""] if isinstance(result.settings, UnlabelledSettings) else []),
        "import atlas_engine as atlas",
        "",
        *_open_lines(origin),
        f'    recipe = atlas.Recipe.load("{name}")',
        '    print(engine.compare(["new.jpg"], recipe).adapted)',
    ]
    if result.settings is not None:
        again = _learn_lines(result.settings, result.recipe.classes)
        again = [*_stopped_comment(result), *again, f'result.save("{name}")']
        lines += ["", *(f"    {line}" for line in again)]
    return "\n".join(lines)


def shell_commands(result: SavedResult, *, origin: ModelOrigin = SHIPPED) -> str:
    """The same from a terminal."""
    name = _recipe_name(result.recipe)
    learn: list[str] = []
    if result.settings is not None:
        command = f"{_learn_command(result.settings, result.recipe.classes)}{model_flags(origin)} -o {name}"
        learn = [*bank_commands(origin), *_stopped_comment(result), command]
    return "\n".join([*learn, f"atlas show {name}"])


def model_flags(origin: ModelOrigin) -> str:
    """The flags that name the model and its bank; '' for the one that ships."""
    return f" --model {shlex.quote(origin.model)} --bank {BANK_FILE}" if origin.model else ""


def bank_commands(origin: ModelOrigin) -> list[str]:
    """The command that makes the bank's file, or a comment on it, where `model_flags` names one."""
    if origin.public_bank:
        return [f"atlas bank import {origin.public_bank} --storage {origin.storage} -o {BANK_FILE}"]
    return [f"# {text.takeaway.BANK_COMMENT}"] if origin.model else []


def _open_lines(origin: ModelOrigin) -> list[str]:
    """Python that opens the model with the bank that the recipe was made with."""
    if origin.public_bank:
        return [
            f"*_, ready = atlas.prepare({origin.model!r})  # {text.takeaway.PREPARE_COMMENT}",
            "with ready.engine as engine:",
        ]
    if origin.model:
        return [
            f"# {text.takeaway.BANK_COMMENT}",
            f'with atlas.open({origin.model!r}, bank="{BANK_FILE}") as engine:',
        ]
    return ["with atlas.open() as engine:"]


def _stopped_comment(result: SavedResult) -> list[str]:
    """A comment for a result that ended early, which nobody can stop at the same moment again."""
    return [f"# {text.takeaway.STOPPED_COMMENT}"] if result.stopped else []


def _learn_lines(settings: FewShotSettings | UnlabelledSettings, classes: Sequence[str]) -> list[str]:
    """Python that learns the same again."""
    templates = f"templates={settings.templates!r}, " if settings.templates else ""
    if isinstance(settings, UnlabelledSettings):
        return [
            f"# {text.unlabelled.AGAIN_COMMENT}",
            'photos = sorted(Path("my_photos").iterdir(), key=lambda path: atlas.natural_key(path.name))',
            f'result = engine.test_time(photos, {list(classes)!r}, objective="{settings.objective}", '
            f"{templates}seed={settings.seed}).result()",
        ]
    numbers = {"steps": settings.config.steps, "lr": settings.config.lr}  # None is the method's own
    given = ", ".join(f"{name}={number}" for name, number in numbers.items() if number is not None)
    return [
        f"# {text.takeaway.AGAIN_COMMENT}",
        'support = atlas.Support.from_folder("my_pictures")',
        f"config = atlas.FewShotConfig({given})",
        f'result = engine.few_shot(support, method="{settings.method}", config=config, '
        f"{templates}seed={settings.seed}).result()",
    ]


def _learn_command(settings: FewShotSettings | UnlabelledSettings, classes: Sequence[str]) -> str:
    """The command that learns the same again, with the flags that differ from their defaults."""
    templates = "".join(f" --templates {shlex.quote(line)}" for line in settings.templates.splitlines())
    if isinstance(settings, UnlabelledSettings):
        defaults = UnlabelledSettings()
        flags = _flags(
            ("objective", settings.objective, defaults.objective), ("seed", settings.seed, defaults.seed)
        )
        return f"atlas adapt test-time my_photos --classes {shlex.quote(','.join(classes))}{flags}{templates}"
    usual = FewShotSettings()
    flags = _flags(
        ("method", settings.method, usual.method),
        ("steps", settings.config.steps, None),
        ("lr", settings.config.lr, None),
        ("seed", settings.seed, usual.seed),
    )
    return f"atlas adapt few-shot my_pictures{flags}{templates}"


def _flags(*values: tuple[str, object, object]) -> str:
    """`--name value` for each (name, value, default) whose value is not the default."""
    return "".join(f" --{name} {value}" for name, value, default in values if value != default)


def _recipe_name(recipe: atlas.Recipe) -> str:
    return f"{_file_stem(recipe.classes)}{RECIPE_ENDING}"


def _file_stem(classes: Sequence[str]) -> str:
    """A file name of plain letters from the first classes.

    >>> _file_stem(["Otter", "sea lion"])
    'otter-sea-lion'
    """
    words = (re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")[:20] for name in classes[:3])
    return "-".join(word for word in words if word) or "recipe"
