"""The recipe: a small file that rebuilds an adapted model. Of models and banks it knows only fingerprints.

One safetensors file: the coefficients as float32, of the blocks that have any, what an adapter head learned
(if any, in float16 as a rule) and, as JSON in the file's metadata, where they come from. Recipes travel
between strangers, so `Recipe.load` believes nothing: sizes, names, dtypes, shapes and values are checked
before a recipe exists. The same checks hold for a recipe made here, so that what is saved can be loaded.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeVar

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.nn import functional as F

from atlas_engine.bank.blocks import BLOCK_KINDS, Block, BlockTable
from atlas_engine.class_names import is_legible
from atlas_engine.clip.backbone import Backbone
from atlas_engine.clip.feature_levels import (
    FeatureStats,
    matching_logit_scale,
    pad_text_embeddings,
    with_feature_levels,
)
from atlas_engine.compose.coefficients import Coefficients, Layout
from atlas_engine.config import software_version
from atlas_engine.errors import AtlasError, RecipeError
from atlas_engine.files import atomic_write
from atlas_engine.heads.registry import FeatureLevel, find_head

__all__ = ["MAX_RECIPE_NBYTES", "Recipe", "as_predictor"]

MAX_RECIPE_NBYTES = 64 * 2**20
MAX_HEADER_NBYTES = 8 * 2**20
MAX_TEXT = 300  # characters of one name
MAX_ITEMS = 20_000  # names in one list
FORMAT = "atlas-recipe-2"
LAM = "coefficients"
HEAD = "head."

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Kind = TypeVar("Kind")


def _versions() -> dict[str, str]:
    return {"atlas": software_version(), "torch": torch.__version__}


@dataclass(frozen=True, eq=False)
class Recipe:
    """Coefficients and where they come from. ``head`` is what an adapter head learned, by name."""

    coefficients: Coefficients
    model: str
    model_fingerprint: str
    bank_fingerprint: str
    classes: tuple[str, ...] = ()
    method: str = ""
    config: Mapping[str, Json] = field(default_factory=dict)
    seed: int = 0
    versions: Mapping[str, str] = field(default_factory=_versions)
    head: Mapping[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = dataclasses.replace(self.coefficients, values=_owned(self.coefficients.values))
        object.__setattr__(self, "coefficients", own)
        object.__setattr__(self, "head", {name: _owned(tensor) for name, tensor in self.head.items()})
        _check_texts(self)
        _check_tensors(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Recipe) or _describe(self) != _describe(other):
            return False
        mine, theirs = _tensors(self), _tensors(other)
        return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        size = f"{len(self.coefficients.tasks)} tasks × {len(self.coefficients.blocks)} blocks"
        return f"Recipe({self.method or 'coefficients'} for {self.model}, {size}, seed {self.seed})"

    def check(self, *, model_fingerprint: str, bank_fingerprint: str) -> None:
        """Refuse another model or bank than the recipe was made with."""
        pairs = {
            "model": (self.model_fingerprint, model_fingerprint),
            "bank": (self.bank_fingerprint, bank_fingerprint),
        }
        for what, (wanted, given) in pairs.items():
            if wanted != given:
                raise RecipeError(
                    f"this recipe was made for {self.model} with the {what} {wanted[:12]}, and the {what} "
                    f"{given[:12]} is open. Open the one it was made with, or adapt anew with this one."
                )

    def scaled(
        self, *, tasks: Mapping[str, float] | None = None, layers: Mapping[int, float] | None = None
    ) -> Recipe:
        """A new recipe with some tasks or layers stronger, weaker or (at 0) knocked out; all else is kept."""
        return dataclasses.replace(self, coefficients=self.coefficients.scaled(tasks=tasks, layers=layers))

    def save(self, path: Path | str) -> None:
        """Write the recipe to one safetensors file, whole or not at all."""
        target = Path(path)
        if not target.parent.is_dir():
            raise RecipeError(f"there is no folder '{target.parent}' to save the recipe in. Create it first.")
        data = safetensors.torch.save(_saved(self), metadata={"format": FORMAT, "recipe": _dump(self)})
        try:
            with atomic_write(target) as part:
                part.write_bytes(data)
        except OSError as error:
            raise RecipeError(f"cannot write '{target}' ({error.strerror}). Choose another file.") from error

    @classmethod
    def load(cls, path: Path | str) -> Recipe:
        """Read a recipe that anybody may have written; anything odd about it is a `RecipeError`."""
        try:
            data = _read(Path(path))
            return _rebuild(_facts(data), safetensors.torch.load(data))
        except KeyError as error:
            raise RecipeError(f"'{path}' is not a recipe that can be used: it lacks {error}.") from error
        except (AtlasError, OSError, RecursionError, SafetensorError, ValueError) as error:
            raise RecipeError(f"'{path}' is not a recipe that can be used: {error}") from error


def _owned(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True).contiguous()


def _tensors(recipe: Recipe) -> dict[str, Tensor]:
    return {LAM: recipe.coefficients.values, **{HEAD + name: tensor for name, tensor in recipe.head.items()}}


def _saved(recipe: Recipe) -> dict[str, Tensor]:
    values = recipe.coefficients.values
    moved = values[:, _moved(recipe.coefficients)] if values.ndim > 1 else values
    return _tensors(recipe) | {LAM: moved.contiguous()}


def _moved(of: Coefficients) -> list[int]:
    """The blocks, or whatever the layout's second dimension counts, that have a coefficient other than 0."""
    if of.values.ndim < 2:
        return []
    places: list[int] = of.values.transpose(0, 1).flatten(1).any(dim=1).nonzero()[:, 0].tolist()
    return places


def _spread(values: Tensor, moved: Sequence[int], shape: Sequence[int]) -> Tensor:
    """All coefficients, of this shape, from those that were saved; the others are 0."""
    if len(shape) < 2 or not shape[0]:
        return values
    if 4 * math.prod(shape) > MAX_RECIPE_NBYTES:
        raise RecipeError(f"its tasks and blocks have room for {math.prod(shape)} coefficients, too many.")
    if list(moved) != sorted({place for place in moved if 0 <= place < shape[1]}):
        raise RecipeError("the blocks that it has coefficients for are not in order, or not its own.")
    wanted = (shape[0], len(moved), *shape[2:])
    if tuple(values.shape) != wanted:
        raise RecipeError(
            f"its coefficients are {tuple(values.shape)}, but its tasks and blocks need {wanted}."
        )
    return values.new_zeros(shape).index_copy(1, torch.tensor(moved, dtype=torch.long), values)


def _describe(recipe: Recipe) -> dict[str, Json]:
    """All but the tensors, as JSON types."""
    of = recipe.coefficients
    return {
        "model": recipe.model,
        "model_fingerprint": recipe.model_fingerprint,
        "bank_fingerprint": recipe.bank_fingerprint,
        "blocks_fingerprint": of.blocks.fingerprint,
        "classes": list(recipe.classes),
        "method": recipe.method,
        "config": dict(recipe.config),
        "seed": recipe.seed,
        "versions": dict(recipe.versions),
        "layout": {
            "granularity": of.layout.granularity,
            "partitions": of.layout.partitions,
            "seed": of.layout.seed,
        },
        "tasks": list(of.tasks),
        "blocks": [[block.name, list(block.shape), block.layer, block.kind] for block in of.blocks],
        "head": list[Json](sorted(recipe.head)),
        "moved": list[Json](_moved(of)),
    }


def _dump(recipe: Recipe) -> str:
    return json.dumps(_describe(recipe), allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _check_texts(recipe: Recipe) -> None:
    of = recipe.coefficients
    lists = {
        "class": recipe.classes,
        "task": of.tasks,
        "block": of.blocks.names,
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
    if len(set(of.tasks)) != len(of.tasks) or not of.tasks:
        raise RecipeError("its task names are not all different, or there are none.")


def _config_texts(config: Mapping[str, Json]) -> list[str]:
    """The texts among the settings, which are plain values or lists of them."""
    values = [item for value in config.values() for item in (value if isinstance(value, list) else [value])]
    if any(isinstance(value, (dict, list)) or value in (math.inf, -math.inf) for value in values):
        raise RecipeError("its settings are not plain values.")
    return [value for value in values if isinstance(value, str)]


def _check_tensors(recipe: Recipe) -> None:
    of = recipe.coefficients
    wanted = of.layout.shape(len(of.tasks), of.blocks)
    if tuple(of.values.shape) != wanted:
        raise RecipeError(
            f"its coefficients are {tuple(of.values.shape)}, but its tasks and blocks need {wanted}."
        )
    for name, tensor in _tensors(recipe).items():
        if tensor.dtype != torch.float32 and (tensor.dtype != torch.float16 or name == LAM):
            needed = "float32" if name == LAM else "float32 or float16"
            raise RecipeError(f"'{name}' is {tensor.dtype}, and must be {needed}.")
        if not bool(torch.isfinite(tensor).all()):
            raise RecipeError(f"'{name}' holds NaN or infinity.")


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise RecipeError("there is no such file.")
    with path.open("rb") as file:
        data = file.read(MAX_RECIPE_NBYTES + 1)
    if len(data) > MAX_RECIPE_NBYTES:
        raise RecipeError(f"it is larger than {MAX_RECIPE_NBYTES // 2**20} MiB.")
    return data


def _facts(data: bytes) -> dict[str, Json]:
    """The JSON in the metadata. The tensors' part of the header is left to safetensors, which checks it."""
    nbytes = int.from_bytes(data[:8], "little")
    if len(data) < 8 or nbytes > min(MAX_HEADER_NBYTES, len(data) - 8):
        raise RecipeError("it is not a safetensors file, or it is cut short.")
    header = json.loads(data[8 : 8 + nbytes], parse_constant=_no_constant)
    metadata = _as(dict, _as(dict, header, "header").get("__metadata__"), "metadata")
    if metadata.get("format") != FORMAT:
        raise RecipeError(f"its format is {str(metadata.get('format'))[:40]!r}, and {FORMAT!r} is needed.")
    facts = json.loads(_as(str, metadata.get("recipe"), "recipe"), parse_constant=_no_constant)
    return _as(dict, facts, "recipe")


def _rebuild(facts: Mapping[str, Json], tensors: Mapping[str, Tensor]) -> Recipe:
    layout = _as(dict, facts["layout"], "layout")
    blocks = BlockTable([_block(row) for row in _as(list, facts["blocks"], "blocks")])
    if blocks.fingerprint != facts["blocks_fingerprint"]:
        raise RecipeError("its block table does not match its own fingerprint.")
    head = _texts(facts["head"], "head")
    if tensors.keys() != {LAM, *(HEAD + name for name in head)}:
        raise RecipeError(f"it holds the tensors {sorted(tensors)[:5]}, which are not those it names.")
    free = Layout(
        granularity=_as(str, layout["granularity"], "layout"),
        partitions=_as(int, layout["partitions"], "layout"),
        seed=_as(int, layout["seed"], "layout"),
    )
    tasks = _texts(facts["tasks"], "tasks")
    moved = [_as(int, place, "moved") for place in _as(list, facts["moved"], "moved")]
    values = _spread(tensors[LAM], moved, free.shape(len(tasks), blocks))
    return Recipe(
        coefficients=Coefficients(values, free, tasks, blocks),
        model=_as(str, facts["model"], "model"),
        model_fingerprint=_as(str, facts["model_fingerprint"], "model_fingerprint"),
        bank_fingerprint=_as(str, facts["bank_fingerprint"], "bank_fingerprint"),
        classes=_texts(facts["classes"], "classes"),
        method=_as(str, facts["method"], "method"),
        config=_as(dict, facts["config"], "config"),
        seed=_as(int, facts["seed"], "seed"),
        versions={k: _as(str, v, "versions") for k, v in _as(dict, facts["versions"], "versions").items()},
        head={name: tensors[HEAD + name] for name in head},
    )


def _block(row: Json) -> Block:
    name, shape, layer, kind = _as(list, row, "blocks")
    sizes = tuple(_as(int, size, "blocks") for size in _as(list, shape, "blocks"))
    if kind not in BLOCK_KINDS or len(sizes) > 8 or not all(0 < size < 2**31 for size in sizes):
        raise RecipeError(f"its block {str(name)[:40]!r} has no sensible shape or kind.")
    return Block(_as(str, name, "blocks"), sizes, _as(int, layer, "blocks"), _as(str, kind, "blocks"))


def _texts(value: Json, what: str) -> tuple[str, ...]:
    return tuple(_as(str, item, what) for item in _as(list, value, what))


def _as(kind: type[Kind], value: object, what: str) -> Kind:
    if type(value) is not kind:
        raise RecipeError(f"its '{what}' is not {kind.__name__}.")
    return value


def _no_constant(text: str) -> Sequence[str]:
    raise RecipeError(f"its header holds {text}.")


# ---- What a recipe says of pictures, by a tower made once. Knows nothing of banks, files or sessions.
# answer = answering(recipe, tower, backbone, text) # the adapted tower, embeddings of the recipe's classes
# answer(squares) # (N 3 S S) uint8 -> (N C), as often as is wanted
BATCH = 32


def as_predictor(
    recipe: Recipe, tower: nn.Module, backbone: Backbone, text: Tensor
) -> Callable[[Tensor], Tensor]:
    """Squares as the tower takes them to logits, by the recipe's classes."""
    row = find_head(str(recipe.config.get("head", "none")))
    tensors = {name: tensor.to(backbone.device).float() for name, tensor in recipe.head.items()}
    feature_stats, own = FeatureStats.from_tensors(tensors)
    seeing = (
        with_feature_levels(tower, feature_stats=feature_stats)
        if row.feature_level is not FeatureLevel.projected
        else tower
    )

    @torch.inference_mode()
    def answer(squares: Tensor) -> Tensor:
        parts = [
            seeing(backbone.as_input(some.float() / 255)).float() for some in torch.split(squares, BATCH)
        ]
        features = F.normalize(torch.cat(parts), dim=-1)
        width = features.shape[1]
        scale = matching_logit_scale(backbone.logit_scale, text, width, feature_stats=feature_stats)
        return row.rebuild(own, pad_text_embeddings(text, width), logit_scale=scale).logits(features)

    return answer
