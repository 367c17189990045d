"""An image tower cut in two: an early part whose activations are kept, a late part that is trained.

    late = late_part(visual, share=0.5)                      # at least half of the weights are late
    kept = late.early(images)                                # once per view
    features = late.tower(kept)                              # visual(images), bit for bit

The late tower is a twin (`modules.frozen_copy`) with nothing left in the places of the early modules, so its
parameters have the names that they have in the whole tower, and whatever takes a tower takes it too. The
tower itself is never written to. Knows nothing of banks, of coefficients or of where activations are kept.
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

__all__ = ["CutPoint", "SplitTower", "cut_points", "maps_of", "split_at", "split_tower"]


@dataclass(frozen=True)
class CutPoint:
    """A place where a tower can be cut: before the module `name`, with `numel` parameters from there on."""

    name: str
    numel: int
    share: float  # of the whole tower's parameters


@dataclass(frozen=True, eq=False)
class SplitTower:
    """The late part of a tower. `tower` takes activations of `early` where the whole tower takes images."""

    cut: CutPoint
    tower: nn.Module = field(repr=False)
    names: tuple[str, ...] = field(repr=False)  # of the late tower's parameters, in the tower's order
    front: nn.Module = field(repr=False)

    @torch.no_grad()
    def early(self, images: Tensor) -> Tensor:
        """(B 3 H W) -> the activations at the cut, (B …), for the late tower."""
        activations: Tensor = self.front(images)
        return activations


def cut_points(visual: nn.Module) -> tuple[CutPoint, ...]:
    """Every place where the tower can be cut, from input to output; none where its kind is not known."""
    anatomy = _anatomy(visual)
    if anatomy is None:
        return ()
    sizes = {name: parameter.numel() for name, parameter in visual.named_parameters()}
    total = sum(sizes.values())
    found = []
    for at, name in enumerate((*anatomy.blocks, anatomy.rest)):
        early = anatomy.before(at)
        late = sum(numel for parameter, numel in sizes.items() if not _is_within(parameter, early))
        found.append(CutPoint(name, late, late / total))
    return tuple(found)


def split_tower(visual: nn.Module, *, share: float = 0.5, until: str | None = None) -> SplitTower | None:
    """The tower from the latest cut that leaves at least `share` of its parameters in the late part.

    With `until`, from a cut that is not behind that module, so that the late part has its output.
    None where there is no such cut: the kind of tower is not known, or even its stem holds too much.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"share={share} is out of range. It must be above 0 and at most 1.")
    wide_enough = [cut for cut in cut_points(visual) if cut.share >= share]
    if until is not None:
        within = [at for at, cut in enumerate(wide_enough) if _is_within(cut.name, [until])]
        wide_enough = wide_enough[: within[-1] + 2] if within else wide_enough
    return split_at(visual, wide_enough[-1]) if wide_enough else None


def maps_of(visual: nn.Module) -> tuple[str, ...]:
    """The modules that give a tower's maps (B C H W), one for each stage; none where it has tokens."""
    anatomy = _anatomy(visual)
    return () if anatomy is None else anatomy.maps


def split_at(visual: nn.Module, cut: CutPoint) -> SplitTower:
    """The tower from this cut on, one of `cut_points(visual)`."""
    anatomy = _anatomy(visual)
    places = () if anatomy is None else (*anatomy.blocks, anatomy.rest)
    if anatomy is None or cut.name not in places:
        raise ConfigError(unknown_name("cut", cut.name, places))
    at = places.index(cut.name)
    tower = frozen_copy(visual)
    _empty(tower, anatomy.before(at))
    if anatomy.embeds:
        object.__setattr__(tower, "_embeds", _as_it_comes)
    names = tuple(name for name, _ in tower.named_parameters())
    return SplitTower(cut, tower.eval(), names, _front(frozen_copy(visual), anatomy, at).eval())


@dataclass(frozen=True)
class _Anatomy:
    """The modules of a tower in the order that images pass them, by name.

    What lies before the blocks, the blocks, each of which takes what the one before it gives, and the first
    module after them. Where `embeds`, a method of the tower makes tokens with what lies before the blocks.
    `maps` are the modules that end a stage, where what passes is maps of the image.
    """

    stem: tuple[str, ...]
    blocks: tuple[str, ...]
    rest: str
    embeds: bool = False
    maps: tuple[str, ...] = ()

    def before(self, at: int) -> tuple[str, ...]:
        """All that images pass before block number `at`."""
        return (*self.stem, *self.blocks[:at])

    def within(self, module: str) -> _Anatomy:
        """The same, for a tower that holds this one under the name `module`."""
        lists = (self.stem, self.blocks, self.maps)
        stem, blocks, maps = (tuple(f"{module}.{name}" for name in names) for names in lists)
        return replace(self, stem=stem, blocks=blocks, maps=maps, rest=f"{module}.{self.rest}")


def _anatomy(visual: nn.Module) -> _Anatomy | None:
    if _kind(visual) == "open_clip.TimmModel":
        trunk: Any = visual.trunk
        read = _KINDS.get(_kind(trunk))
        return read(trunk).within("trunk") if read else None
    read = _KINDS.get(_kind(visual))
    return read(visual) if read else None


def _kind(module: nn.Module) -> str:
    """Exactly this class, not one that inherits from it: that may well run its modules in another order."""
    return f"{type(module).__module__.split('.')[0]}.{type(module).__qualname__}"


def _vision_transformer(tower: Any) -> _Anatomy:  # noqa: ANN401 - open_clip and timm have no types
    stem = ("conv1", "class_embedding", "positional_embedding", "patch_dropout", "ln_pre")
    blocks = tuple(f"transformer.resblocks.{i}" for i in range(len(tower.transformer.resblocks)))
    return _Anatomy(stem, blocks, "ln_post" if tower.attn_pool is None else "attn_pool", embeds=True)


def _modified_resnet(tower: Any) -> _Anatomy:  # noqa: ANN401
    children = [name for name, _ in tower.named_children()]
    layers = [name for name in children if name.startswith("layer")]
    blocks = tuple(f"{layer}.{i}" for layer in layers for i in range(len(getattr(tower, layer))))
    return _Anatomy(tuple(children[: children.index(layers[0])]), blocks, "attnpool")


def _efficientnet(trunk: Any) -> _Anatomy:  # noqa: ANN401
    blocks = tuple(f"blocks.{s}.{i}" for s, stage in enumerate(trunk.blocks) for i in range(len(stage)))
    maps = tuple(f"blocks.{s}" for s in range(len(trunk.blocks)))
    return _Anatomy(("conv_stem", "bn1"), blocks, "conv_head", maps=maps)


def _tiny_vit(trunk: Any) -> _Anatomy:  # noqa: ANN401
    stages = tuple(f"stages.{i}" for i in range(len(trunk.stages)))
    return _Anatomy(("patch_embed",), stages, "head", maps=stages)


_KINDS: dict[str, Callable[[Any], _Anatomy]] = {
    "open_clip.VisionTransformer": _vision_transformer,
    "open_clip.ModifiedResNet": _modified_resnet,
    "timm.EfficientNet": _efficientnet,
    "timm.MobileNetV3": _efficientnet,
    "timm.TinyVit": _tiny_vit,
}


def _front(tower: nn.Module, anatomy: _Anatomy, at: int) -> nn.Module:
    if not anatomy.embeds:
        return nn.Sequential(*(tower.get_submodule(name) for name in anatomy.before(at)))
    _empty(tower, anatomy.blocks[at:])
    return _Tokens(tower)


class _Tokens(nn.Module):
    """Images to tokens, through those blocks of a transformer that are left."""

    def __init__(self, tower: nn.Module) -> None:
        super().__init__()
        self.tower: Any = tower

    @override
    def forward(self, images: Tensor) -> Tensor:
        tokens: Tensor = self.tower.transformer(self.tower._embeds(images))
        return tokens


def _empty(tower: nn.Module, names: Iterable[str]) -> None:
    """Leave nothing in these places of a twin: what comes in goes out, and a parameter is None."""
    for name in names:
        path, _, leaf = name.rpartition(".")
        owner = tower.get_submodule(path)
        is_module = isinstance(getattr(owner, leaf), nn.Module)
        setattr(owner, leaf, _Passage() if is_module else None)


class _Passage(nn.Module):
    """Gives back its first argument; transformer blocks are called with a mask besides."""

    @override
    def forward(self, x: Tensor, *_: object, **__: object) -> Tensor:
        return x


def _as_it_comes(x: Tensor) -> Tensor:
    return x


def _is_within(parameter: str, names: Iterable[str]) -> bool:
    return any(parameter == name or parameter.startswith(f"{name}.") for name in names)
