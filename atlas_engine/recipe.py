"""The recipe: a small file that rebuilds an adapted model, and the predictor made from it.

    recipe.save("otters.atlas.safetensors")
    recipe = Recipe.load("otters.atlas.safetensors")
    predict = as_predictor(recipe, tower, backbone, text)       # the adapted tower, its classes' embeddings
    logits = predict(pixels)                                    # (N 3 S S) uint8 -> (N C), as often as wanted

A recipe is one safetensors file: the coefficients λ in float32 (without blocks where all are 0), the tensors
of the head (usually float16) and, as JSON in the file's metadata, where they come from. It holds fingerprints
of the model and the bank, not their weights.

Strangers exchange recipes, so `Recipe.load` trusts nothing: sizes, names, dtypes, shapes and values are
checked before a recipe exists. A recipe made here passes the same checks, so what is saved can be loaded.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import safetensors.torch
import torch
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.bank.blocks import BLOCK_KINDS, Block, BlockTable
from atlas_engine.calibration import Calibration
from atlas_engine.class_names import is_legible
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.feature_levels import (
    FeatureStats,
    matching_logit_scale,
    pad_text_embeddings,
    with_feature_levels,
)
from atlas_engine.clip.templates import find_templates
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.compose.linearised import TangentTower
from atlas_engine.config import software_version
from atlas_engine.display import facts_html, shorten
from atlas_engine.errors import AtlasError, ConfigError, RecipeError
from atlas_engine.files import atomic_write
from atlas_engine.heads.base import Head
from atlas_engine.heads.registry import FeatureLevel, find_head
from atlas_engine.runtime import autocast

__all__ = [
    "CLASS_EMBEDDINGS",
    "IMAGES",
    "MAX_RECIPE_NBYTES",
    "TEMPLATES",
    "Json",
    "Recipe",
    "RecipeNetwork",
    "as_predictor",
]

MAX_RECIPE_NBYTES = 64 * 2**20
MAX_HEADER_NBYTES = 8 * 2**20
MAX_TEXT = 300  # characters of one name
MAX_ITEMS = 20_000  # names in one list
FORMAT = "atlas-recipe-2"
LAM = "coefficients"  # the name of λ among the tensors of the file
HEAD = "head."  # what the names of the head's tensors begin with there
TEMPLATES = "templates"  # the setting that holds the sentences, where others than the model's own were chosen
IMAGES = "images"  # the setting that holds how many labelled images a few-shot recipe was learned from
CLASS_EMBEDDINGS = "class_embeddings"  # the name of (C D) among the head's tensors, where they are kept
PREDICT_BATCH = 32
MAX_COEFFICIENT = 1e3  # learned ones stay below 10; at this size no model is left of the tower
MAX_HEAD_NUMBER = 1e6

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Kind = TypeVar("Kind")
Written = TypeVar("Written")
Written_co = TypeVar("Written_co", covariant=True)


class RecipeExporter(Protocol[Written_co]):
    """What `Recipe.export` needs of a session."""

    def export(self, recipe: Recipe, folder: Path | str, *, format: str, int8: bool) -> Written_co:
        """Write the recipe's model to a new folder; what was written."""
        ...


def _current_versions() -> dict[str, str]:
    return {"atlas": software_version(), "torch": torch.__version__}


@dataclass(frozen=True, eq=False)
class Recipe:
    """Coefficients, the tensors of a head by name, and where they come from."""

    coefficients: Coefficients
    model: str
    model_fingerprint: str
    bank_fingerprint: str
    classes: tuple[str, ...] = ()
    method: str = ""
    config: Mapping[str, Json] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=_current_versions)
    head: Mapping[str, Tensor] = field(default_factory=dict)
    calibration: Calibration | None = None  # None: probabilities are the softmax of the logits

    def __post_init__(self) -> None:
        own = dataclasses.replace(self.coefficients, values=_cpu_copy(self.coefficients.values))
        object.__setattr__(self, "coefficients", own)
        object.__setattr__(self, "head", {name: _cpu_copy(tensor) for name, tensor in self.head.items()})
        _check_texts(self)
        _check_templates(self)
        _check_tensors(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recipe) or _description(self) != _description(other):
            return False
        mine, theirs = _named_tensors(self), _named_tensors(other)
        return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        size = f"{len(self.coefficients.tasks)} tasks × {len(self.coefficients.blocks)} blocks"
        return f"Recipe({self.method or 'coefficients'} for {self.model}, {size}, seed {self.seed})"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        tasks = self.coefficients.tasks
        used = self.coefficients.values.flatten(1).any(dim=1).tolist()
        moved = [task for task, uses in zip(tasks, used, strict=True) if uses]
        return facts_html(
            "Recipe",
            [
                ("model", self.model),
                ("method", self.method or "coefficients"),
                ("classes", f"{len(self.classes)}: {shorten(self.classes)}"),
                ("task vectors", f"{len(moved)} of {len(tasks)}: {shorten(moved)}" if moved else "none"),
                ("head", self.config.get("head", "none")),
                ("seed", self.seed),
            ],
        )

    @property
    def templates(self) -> tuple[str, ...] | None:
        """The sentences that the class names are put into; None for the model's own."""
        given = self.config.get(TEMPLATES)
        if given is None:
            return None
        if not isinstance(given, list):
            raise RecipeError("its templates are not a list.")
        return find_templates([str(sentence) for sentence in given])

    def check(self, *, model_fingerprint: str, bank_fingerprint: str | None = None) -> None:
        """Raise a `RecipeError` unless the recipe was made with this model, and this bank if one is given."""
        pairs = {
            "model": (self.model_fingerprint, model_fingerprint),
            "bank": (self.bank_fingerprint, bank_fingerprint),
        }
        for what, (wanted, given) in pairs.items():
            if given is not None and wanted != given:
                raise RecipeError(
                    f"this recipe was made for {self.model} with the {what} {wanted[:12]}, and the {what} "
                    f"{given[:12]} is open. Open the one it was made with, or adapt anew with this one."
                )

    @property
    def class_embeddings(self) -> Float[Tensor, "C D"] | None:
        """The embeddings of the classes, kept where no text tower can make them; None elsewhere."""
        return self.head.get(CLASS_EMBEDDINGS)

    def scaled(
        self, *, tasks: Mapping[str, float] | None = None, layers: Mapping[int, float] | None = None
    ) -> Recipe:
        """The same recipe with the λ of some tasks or layers times a factor; 0 removes one.

        Its calibration stays as it was measured, before the scaling.
        """
        return dataclasses.replace(self, coefficients=self.coefficients.scaled(tasks=tasks, layers=layers))

    def save(self, path: Path | str) -> None:
        """Write the recipe to one safetensors file, completely or not at all."""
        target = Path(path)
        if not target.parent.is_dir():
            raise RecipeError(f"there is no folder '{target.parent}' to save the recipe in. Create it first.")
        try:
            with atomic_write(target) as part:
                part.write_bytes(self.to_bytes())
        except OSError as error:
            raise RecipeError(f"cannot write '{target}' ({error.strerror}). Choose another file.") from error

    def to_bytes(self) -> bytes:
        """The bytes of the recipe's file; the same each time, so that their hash can name the recipe."""
        description = json.dumps(
            _description(self), allow_nan=False, ensure_ascii=False, separators=(",", ":")
        )
        data = safetensors.torch.save(
            _tensors_to_save(self), metadata={"format": FORMAT, "recipe": description}
        )
        return _sort_metadata(data)

    def export(
        self, folder: Path | str, *, engine: RecipeExporter[Written], format: str = "onnx", int8: bool = False
    ) -> Written:
        """Write the adapted model to a new folder: onnx, html, openclip or transformers.

        `engine` is a session with the recipe's model and bank.
        """
        return engine.export(self, folder, format=format, int8=int8)

    @classmethod
    def load(cls, path: Path | str) -> Recipe:
        """The recipe in a file that anybody may have written, or a `RecipeError`."""
        try:
            data = _read_file(Path(path))
        except (AtlasError, OSError) as error:
            raise RecipeError(f"'{path}' is not a recipe that can be used: {error}") from error
        return cls.from_bytes(data, name=str(path))

    @classmethod
    def from_bytes(cls, data: bytes, *, name: str = "this") -> Recipe:
        """The recipe in the bytes of a file that anybody may have written, or a `RecipeError`."""
        try:
            if len(data) > MAX_RECIPE_NBYTES:
                raise RecipeError(f"it is larger than {MAX_RECIPE_NBYTES // 2**20} MiB.")
            return _build_recipe(_read_description(data), safetensors.torch.load(data))
        except KeyError as error:
            raise RecipeError(f"'{name}' is not a recipe that can be used: it lacks {error}.") from error
        except (AtlasError, OSError, RecursionError, SafetensorError, ValueError) as error:
            raise RecipeError(f"'{name}' is not a recipe that can be used: {error}") from error


Predictor: TypeAlias = Callable[[UInt8[Tensor, "N 3 S S"]], Float[Tensor, "N C"]]


def as_predictor(
    recipe: Recipe, tower: nn.Module, backbone: Backbone, text: Float[Tensor, "C D"]
) -> Predictor:
    """A function from pixels to logits over the recipe's classes: (N 3 S S) uint8 -> (N C).

    ``tower`` is the image tower at the recipe's coefficients, ``text`` has the embeddings of its classes.
    """
    network = RecipeNetwork(recipe, tower, backbone, text)

    @torch.inference_mode()
    def predict(pixels: UInt8[Tensor, "N 3 S S"]) -> Float[Tensor, "N C"]:
        batches = torch.split(pixels, PREDICT_BATCH)
        with autocast(backbone.device):
            features = [network.features(backbone.as_input(batch.float() / 255)) for batch in batches]
        logits = network.logits(torch.cat(features))
        if not bool(torch.isfinite(logits).all()):
            raise RecipeError(
                "this recipe's model answers with NaN or infinity. Its coefficients or its head do not fit: "
                "adapt anew, or turn its task vectors down."
            )
        return logits

    return predict


class RecipeNetwork(nn.Module):
    """The recipe's model as a module, to run or to export: normalised images (N 3 S S) -> logits (N C).

    Its arguments are those of `as_predictor`. The head is made for the width of the first features.
    """

    def __init__(
        self, recipe: Recipe, tower: nn.Module, backbone: Backbone, text: Float[Tensor, "C D"]
    ) -> None:
        super().__init__()
        self._spec = find_head(str(recipe.config.get("head", "none")))
        tensors = {
            name: tensor.to(backbone.device).float()
            for name, tensor in recipe.head.items()
            if name != CLASS_EMBEDDINGS
        }
        self._feature_stats, self._head_tensors = FeatureStats.from_tensors(tensors)
        if self._spec.feature_level is not FeatureLevel.projected:
            with_levels = functools.partial(with_feature_levels, feature_stats=self._feature_stats)
            tower = tower.rebuild(with_levels) if isinstance(tower, TangentTower) else with_levels(tower)
        self.tower = tower
        self._logit_scale, self._text = backbone.logit_scale, text
        self._head: Head | None = None

    def forward(self, images: Float[Tensor, "N 3 S S"]) -> Float[Tensor, "N C"]:
        """Logits of normalised images."""
        return self.logits(self.features(images))

    def features(self, images: Float[Tensor, "N 3 S S"]) -> Float[Tensor, "N D"]:
        """Features of the levels that the head works on, in float32, not normalised."""
        features: Tensor = self.tower(images)
        return features.float()

    def logits(self, features: Float[Tensor, "N D"]) -> Float[Tensor, "N C"]:
        """Logits of features, which need not be normalised."""
        if self._head is None:
            self._head = self.head_for(features.shape[1])
        return self._head.logits(F.normalize(features, dim=-1))

    def head_for(self, width: int) -> Head:
        """The head for features of this width, or a `RecipeError`."""
        logit_scale = matching_logit_scale(
            self._logit_scale, self._text, width, feature_stats=self._feature_stats
        )
        text = pad_text_embeddings(self._text, width)
        return self._spec.rebuild(self._head_tensors, text, logit_scale=logit_scale)


# ---- what goes into the file


def _cpu_copy(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def _named_tensors(recipe: Recipe) -> dict[str, Tensor]:
    """λ and the head's tensors, under their names in the file."""
    return {LAM: recipe.coefficients.values, **{HEAD + name: tensor for name, tensor in recipe.head.items()}}


def _tensors_to_save(recipe: Recipe) -> dict[str, Tensor]:
    """The named tensors, with λ cut down to its columns that are not all 0."""
    values = recipe.coefficients.values
    kept = values[:, _nonzero_columns(recipe.coefficients)] if values.ndim > 1 else values
    return _named_tensors(recipe) | {LAM: kept.contiguous()}


def _nonzero_columns(coefficients: Coefficients) -> list[int]:
    """Which columns of λ, blocks as a rule, hold anything but 0; none for a layout without columns."""
    if coefficients.values.ndim < 2:
        return []
    nonzero = coefficients.values.transpose(0, 1).flatten(1).any(dim=1).nonzero()
    columns: list[int] = nonzero[:, 0].tolist()
    return columns


def _restore_columns(values: Tensor, columns: Sequence[int], shape: Sequence[int]) -> Tensor:
    """λ of this shape from the columns that were saved; the others are 0."""
    if len(shape) < 2 or not shape[0]:
        return values
    if 4 * math.prod(shape) > MAX_RECIPE_NBYTES:
        raise RecipeError(f"its tasks and blocks have room for {math.prod(shape)} coefficients, too many.")
    if list(columns) != sorted({column for column in columns if 0 <= column < shape[1]}):
        raise RecipeError("the blocks that it has coefficients for are not in order, or not its own.")
    wanted = (shape[0], len(columns), *shape[2:])
    if tuple(values.shape) != wanted:
        raise RecipeError(
            f"its coefficients are {tuple(values.shape)}, but its tasks and blocks need {wanted}."
        )
    return values.new_zeros(shape).index_copy(1, torch.tensor(columns, dtype=torch.long), values)


def _description(recipe: Recipe) -> dict[str, Json]:
    """Everything but the tensors, as JSON types. The keys are the file format."""
    coefficients = recipe.coefficients
    return {
        "model": recipe.model,
        "model_fingerprint": recipe.model_fingerprint,
        "bank_fingerprint": recipe.bank_fingerprint,
        "blocks_fingerprint": coefficients.blocks.fingerprint,
        "classes": list(recipe.classes),
        "method": recipe.method,
        "config": dict(recipe.config),
        "seed": recipe.seed,
        "versions": dict(recipe.versions),
        "layout": {
            "granularity": coefficients.layout.granularity,
            "partitions": coefficients.layout.partitions,
            "seed": coefficients.layout.seed,
            "split_by": coefficients.layout.split_by,
        },
        "tasks": list(coefficients.tasks),
        "blocks": [[block.name, list(block.shape), block.layer, block.kind] for block in coefficients.blocks],
        "head": list[Json](sorted(recipe.head)),
        "moved": list[Json](_nonzero_columns(coefficients)),
        **({} if recipe.calibration is None else {"calibration": dataclasses.asdict(recipe.calibration)}),
    }


# ---- checks of a recipe, made here or read


def _check_texts(recipe: Recipe) -> None:
    coefficients = recipe.coefficients
    lists = {
        "class": recipe.classes,
        "task": coefficients.tasks,
        "block": coefficients.blocks.names,
        "version": (*recipe.versions, *recipe.versions.values()),
        "head tensor": tuple(recipe.head),
        "setting": (*recipe.config, *_config_texts(recipe.config)),
        "model": (recipe.model, recipe.model_fingerprint, recipe.bank_fingerprint, recipe.method),
    }
    for what, texts in lists.items():
        if len(texts) > MAX_ITEMS:
            raise RecipeError(f"it names {len(texts)} of {what}, more than {MAX_ITEMS}.")
        for text in texts:
            if len(text) > MAX_TEXT or not is_legible(text):
                raise RecipeError(f"the {what} name {text[:40]!r} is too long or has unprintable characters.")
    if len(set(coefficients.tasks)) != len(coefficients.tasks) or not coefficients.tasks:
        raise RecipeError("its task names are not all different, or there are none.")


def _config_texts(config: Mapping[str, Json]) -> list[str]:
    """The texts among the settings, which are plain values or lists of them."""
    values = [item for value in config.values() for item in (value if isinstance(value, list) else [value])]
    if any(isinstance(value, (dict, list)) or value in (math.inf, -math.inf) for value in values):
        raise RecipeError("its settings are not plain values.")
    return [value for value in values if isinstance(value, str)]


def _check_templates(recipe: Recipe) -> None:
    try:
        _ = recipe.templates
    except ConfigError as error:
        raise RecipeError(f"its templates cannot be used: {error}") from error


def _check_tensors(recipe: Recipe) -> None:
    coefficients = recipe.coefficients
    shape = tuple(coefficients.values.shape)
    wanted = coefficients.layout.shape(len(coefficients.tasks), coefficients.blocks)
    if shape != wanted:
        raise RecipeError(f"its coefficients are {shape}, but its tasks and blocks need {wanted}.")
    for name, tensor in _named_tensors(recipe).items():
        if tensor.dtype != torch.float32 and (tensor.dtype != torch.float16 or name == LAM):
            needed = "float32" if name == LAM else "float32 or float16"
            raise RecipeError(f"'{name}' is {tensor.dtype}, and must be {needed}.")
        if not bool(torch.isfinite(tensor).all()):
            raise RecipeError(f"'{name}' holds NaN or infinity.")
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        most = MAX_COEFFICIENT if name == LAM else MAX_HEAD_NUMBER
        if largest > most:
            raise RecipeError(f"'{name}' reaches {largest:.3g}, but numbers up to {most:g} are taken.")


# ---- reading a file that anybody may have written


def _read_file(path: Path) -> bytes:
    if not path.is_file():
        raise RecipeError("there is no such file.")
    with path.open("rb") as file:
        return file.read(MAX_RECIPE_NBYTES + 1)


def _sort_metadata(data: bytes) -> bytes:
    """A safetensors file with its metadata in order of their names: safetensors writes them in any order."""
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the tensors stay aligned
    return len(text).to_bytes(8, "little") + text + data[start:]


def _read_description(data: bytes) -> dict[str, Json]:
    """The JSON in the metadata. The tensors' part of the header is left to safetensors, which checks it."""
    nbytes = int.from_bytes(data[:8], "little")
    if len(data) < 8 or nbytes > min(MAX_HEADER_NBYTES, len(data) - 8):
        raise RecipeError("it is not a safetensors file, or it is cut short.")
    header = json.loads(data[8 : 8 + nbytes], parse_constant=_refuse_constant)
    metadata = _expect(dict, _expect(dict, header, "header").get("__metadata__"), "metadata")
    if metadata.get("format") != FORMAT:
        raise RecipeError(f"its format is {str(metadata.get('format'))[:40]!r}, and {FORMAT!r} is needed.")
    description = json.loads(_expect(str, metadata.get("recipe"), "recipe"), parse_constant=_refuse_constant)
    return _expect(dict, description, "recipe")


def _build_recipe(description: Mapping[str, Json], tensors: Mapping[str, Tensor]) -> Recipe:
    layout_values = _expect(dict, description["layout"], "layout")
    layout = Layout(
        granularity=_expect(str, layout_values["granularity"], "layout"),
        partitions=_expect(int, layout_values["partitions"], "layout"),
        seed=_expect(int, layout_values["seed"], "layout"),
        split_by=_expect(str, layout_values.get("split_by", "entries"), "layout"),  # older files have none
    )
    blocks = BlockTable([_build_block(row) for row in _expect(list, description["blocks"], "blocks")])
    if blocks.fingerprint != description["blocks_fingerprint"]:
        raise RecipeError("its block table does not match its own fingerprint.")
    # the file holds exactly the tensors that the description names
    head = _expect_texts(description["head"], "head")
    if tensors.keys() != {LAM, *(HEAD + name for name in head)}:
        raise RecipeError(f"it holds the tensors {sorted(tensors)[:5]}, which are not those it names.")
    # put the saved columns of λ back in their places
    tasks = _expect_texts(description["tasks"], "tasks")
    columns = [_expect(int, column, "moved") for column in _expect(list, description["moved"], "moved")]
    values = _restore_columns(tensors[LAM], columns, layout.shape(len(tasks), blocks))
    versions = _expect(dict, description["versions"], "versions")
    return Recipe(
        coefficients=Coefficients(values, layout, tasks, blocks),
        model=_expect(str, description["model"], "model"),
        model_fingerprint=_expect(str, description["model_fingerprint"], "model_fingerprint"),
        bank_fingerprint=_expect(str, description["bank_fingerprint"], "bank_fingerprint"),
        classes=_expect_texts(description["classes"], "classes"),
        method=_expect(str, description["method"], "method"),
        config=_expect(dict, description["config"], "config"),
        seed=_expect(int, description["seed"], "seed"),
        versions={name: _expect(str, version, "versions") for name, version in versions.items()},
        head={name: tensors[HEAD + name] for name in head},
        calibration=_build_calibration(description.get("calibration")),  # older files have none
    )


def _build_calibration(values: Json) -> Calibration | None:
    if values is None:
        return None
    numbers = _expect(dict, values, "calibration")
    wanted = {field.name for field in dataclasses.fields(Calibration)}
    if numbers.keys() != wanted or numbers["temperature"] is None:
        raise RecipeError(f"its 'calibration' does not hold {', '.join(sorted(wanted))}.")
    known = {name: _expect(float, v, "calibration") for name, v in numbers.items() if v is not None}
    return Calibration(**known)


def _build_block(row: Json) -> Block:
    name, shape, layer, kind = _expect(list, row, "blocks")
    sizes = tuple(_expect(int, size, "blocks") for size in _expect(list, shape, "blocks"))
    if kind not in BLOCK_KINDS or len(sizes) > 8 or not all(0 < size < 2**31 for size in sizes):
        raise RecipeError(f"its block {str(name)[:40]!r} has no sensible shape or kind.")
    return Block(
        _expect(str, name, "blocks"), sizes, _expect(int, layer, "blocks"), _expect(str, kind, "blocks")
    )


def _expect_texts(value: Json, what: str) -> tuple[str, ...]:
    return tuple(_expect(str, item, what) for item in _expect(list, value, what))


def _expect(kind: type[Kind], value: object, what: str) -> Kind:
    """The value, if it is of exactly this type: True is not an int."""
    if type(value) is not kind:
        raise RecipeError(f"its '{what}' is not {kind.__name__}.")
    return value


def _refuse_constant(text: str) -> Sequence[str]:
    raise RecipeError(f"its header holds {text}.")
