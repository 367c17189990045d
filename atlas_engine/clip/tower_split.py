"""An image tower split into a frozen prefix, whose activations can be kept, and a trainable suffix.

    split = split_tower(visual, share=0.5)                   # at least half of the parameters in the suffix
    activations = split.run_prefix(images)                   # once per view
    features = split.suffix(activations)                     # visual(images), bit for bit

The suffix is a copy of the tower that shares its tensors (`runtime.frozen_copy`), with pass-through modules
in place of the prefix. Its parameters keep the names that they have in the whole tower, and it can stand
wherever a tower can. The tower itself is not written to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from atlas_engine.errors import ConfigError, unknown_name
from atlas_engine.runtime import frozen_copy

__all__ = ["CutPoint", "SplitTower", "cut_points", "feature_map_modules", "split_at", "split_tower"]


@dataclass(frozen=True)
class CutPoint:
    """A place where a tower can be split: before the module `name`, with `numel` parameters from there on."""

    name: str
    numel: int
    share: float  # of the whole tower's parameters


@dataclass(frozen=True, eq=False)
class SplitTower:
    """A tower split at `cut`. `suffix` takes the activations that `run_prefix` gives."""

    cut: CutPoint
    suffix: nn.Module = field(repr=False)
    names: tuple[str, ...] = field(repr=False)  # of the suffix's parameters, in the tower's order
    prefix: nn.Module = field(repr=False)

    @torch.no_grad()
    def run_prefix(self, images: Tensor) -> Tensor:
        """Activations at the cut (B …) of images (B 3 S S)."""
        activations: Tensor = self.prefix(images)
        return activations


def split_tower(visual: nn.Module, *, share: float = 0.5, include: str | None = None) -> SplitTower | None:
    """The tower split at the latest cut that leaves at least `share` of its parameters in the suffix.

    With `include`, the cut is early enough that the suffix computes that module's output. Returns None if
    there is no such cut: the kind of tower is unknown, or its stem holds too many parameters.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"share={share} is out of range. It must be above 0 and at most 1.")
    cuts = [cut for cut in cut_points(visual) if cut.share >= share]
    if include is not None:
        within = [at for at, cut in enumerate(cuts) if _is_within(cut.name, [include])]
        # Right behind the module is early enough: the activations are then its output.
        cuts = cuts[: within[-1] + 2] if within else cuts
    return split_at(visual, cuts[-1]) if cuts else None


def cut_points(visual: nn.Module) -> tuple[CutPoint, ...]:
    """Every place where the tower can be split, from input to output; none if its kind is unknown."""
    order = _module_order(visual)
    if order is None:
        return ()
    sizes = {name: parameter.numel() for name, parameter in visual.named_parameters()}
    total = sum(sizes.values())
    cuts = []
    for at, name in enumerate(order.cut_names):
        prefix = order.before(at)
        numel = sum(size for parameter, size in sizes.items() if not _is_within(parameter, prefix))
        cuts.append(CutPoint(name, numel, numel / total))
    return tuple(cuts)


def split_at(visual: nn.Module, cut: CutPoint) -> SplitTower:
    """The tower split at one of `cut_points(visual)`."""
    order = _module_order(visual)
    cut_names = () if order is None else order.cut_names
    if order is None or cut.name not in cut_names:
        raise ConfigError(unknown_name("cut", cut.name, cut_names))
    at = cut_names.index(cut.name)
    suffix = frozen_copy(visual)
    _bypass(suffix, order.before(at))
    if order.embeds:
        object.__setattr__(suffix, "_embeds", _identity)
    names = tuple(name for name, _ in suffix.named_parameters())
    return SplitTower(cut, suffix.eval(), names, _prefix(frozen_copy(visual), order, at).eval())


def feature_map_modules(visual: nn.Module) -> tuple[str, ...]:
    """The modules whose outputs are feature maps (B C H W), one per stage; none in a tower of tokens."""
    order = _module_order(visual)
    return () if order is None else order.feature_maps


# ---- In which order a tower runs its modules: one function per kind of tower.


@dataclass(frozen=True)
class _ModuleOrder:
    """The names of a tower's modules, in the order of its forward pass.

    `stem` runs before the blocks, each block takes the output of the one before it, and `rest` is the first
    module after them. If `embeds`, the tower's method `_embeds` runs the stem and makes tokens.
    `feature_maps` are the modules that end a stage, in towers whose activations are maps.
    """

    stem: tuple[str, ...]
    blocks: tuple[str, ...]
    rest: str
    embeds: bool = False
    feature_maps: tuple[str, ...] = ()

    @property
    def cut_names(self) -> tuple[str, ...]:
        """The modules that a suffix can begin with."""
        return (*self.blocks, self.rest)

    def before(self, at: int) -> tuple[str, ...]:
        """All modules that run before block number `at`."""
        return (*self.stem, *self.blocks[:at])

    def within(self, module: str) -> _ModuleOrder:
        """The same order for a tower that holds this one under the name `module`."""
        lists = (self.stem, self.blocks, self.feature_maps)
        stem, blocks, maps = (tuple(f"{module}.{name}" for name in names) for names in lists)
        return replace(self, stem=stem, blocks=blocks, feature_maps=maps, rest=f"{module}.{self.rest}")


def _module_order(visual: nn.Module) -> _ModuleOrder | None:
    if _kind(visual) == "open_clip.TimmModel":
        trunk: Any = visual.trunk
        read_order = _KINDS.get(_kind(trunk))
        return read_order(trunk).within("trunk") if read_order else None
    read_order = _KINDS.get(_kind(visual))
    return read_order(visual) if read_order else None


def _kind(module: nn.Module) -> str:
    """The exact class: a subclass may run its modules in another order."""
    return f"{type(module).__module__.split('.')[0]}.{type(module).__qualname__}"


def _vision_transformer(tower: Any) -> _ModuleOrder:  # noqa: ANN401 - open_clip and timm have no types
    stem = ("conv1", "class_embedding", "positional_embedding", "patch_dropout", "ln_pre")
    blocks = tuple(f"transformer.resblocks.{i}" for i in range(len(tower.transformer.resblocks)))
    return _ModuleOrder(stem, blocks, "ln_post" if tower.attn_pool is None else "attn_pool", embeds=True)


def _modified_resnet(tower: Any) -> _ModuleOrder:  # noqa: ANN401
    children = [name for name, _ in tower.named_children()]
    layers = [name for name in children if name.startswith("layer")]
    blocks = tuple(f"{layer}.{i}" for layer in layers for i in range(len(getattr(tower, layer))))
    return _ModuleOrder(tuple(children[: children.index(layers[0])]), blocks, "attnpool")


def _efficientnet(trunk: Any) -> _ModuleOrder:  # noqa: ANN401
    blocks = tuple(f"blocks.{s}.{i}" for s, stage in enumerate(trunk.blocks) for i in range(len(stage)))
    stages = tuple(f"blocks.{s}" for s in range(len(trunk.blocks)))
    return _ModuleOrder(("conv_stem", "bn1"), blocks, "conv_head", feature_maps=stages)


def _tiny_vit(trunk: Any) -> _ModuleOrder:  # noqa: ANN401
    stages = tuple(f"stages.{i}" for i in range(len(trunk.stages)))
    return _ModuleOrder(("patch_embed",), stages, "head", feature_maps=stages)


_KINDS: dict[str, Callable[[Any], _ModuleOrder]] = {
    "open_clip.VisionTransformer": _vision_transformer,
    "open_clip.ModifiedResNet": _modified_resnet,
    "timm.EfficientNet": _efficientnet,
    "timm.MobileNetV3": _efficientnet,
    "timm.TinyVit": _tiny_vit,
}


# ---- How the two parts are built.


def _prefix(tower: nn.Module, order: _ModuleOrder, at: int) -> nn.Module:
    if not order.embeds:
        return nn.Sequential(*(tower.get_submodule(name) for name in order.before(at)))
    _bypass(tower, order.blocks[at:])
    return _TokenPrefix(tower)


class _TokenPrefix(nn.Module):
    """Images (B 3 S S) to tokens, through those transformer blocks that were not bypassed."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower: Any = tower

    @override
    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.tower.transformer(self.tower._embeds(images))
        return tokens


def _bypass(tower: nn.Module, names: Iterable[str]) -> None:
    """Replace these modules of a copied tower by pass-throughs, and these parameters by None."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = tower.get_submodule(path)
        is_module = isinstance(getattr(owner, leaf), nn.Module)
        setattr(owner, leaf, _PassThrough() if is_module else None)


class _PassThrough(nn.Module):
    """Returns its first argument; transformer blocks are also called with a mask."""

    @override
    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        return x


def _identity(x: Tensor) -> Tensor:
    return x


def _is_within(parameter: str, names: Iterable[str]) -> bool:
    return any(parameter == name or parameter.startswith(f"{name}.") for name in names)
