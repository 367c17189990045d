"""The table of an image tower's parameter blocks: what a coefficient can be attached to.

A block is one named parameter tensor (a weight, a bias, a norm's scale). The table gives each block's shape,
its depth in the tower and its kind, for ViT, ResNet and timm towers alike, from names and shapes only.

    table = block_table(model.visual.named_parameters())
    table[table.index("transformer.resblocks.7.attn.in_proj_weight")].layer    # 8
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from torch import Tensor

from atlas_engine.errors import BankError, unknown_name

__all__ = ["BLOCK_KINDS", "Block", "BlockTable", "block_table"]

BLOCK_KINDS = ("matrix", "conv", "projection", "embedding", "norm", "bias", "scale")
"""What a block can be; the first three are the weights that `matrices only` keeps."""

TOWER_PREFIX = "visual."


@dataclass(frozen=True)
class Block:
    """One named parameter tensor of an image tower. `layer` is 0 in the stem, L + 1 after the last layer."""

    name: str
    shape: tuple[int, ...]
    layer: int
    kind: str

    @property
    def numel(self) -> int:
        """How many parameters the block holds."""
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """How many rows, output rows as a rule: the length of the first axis longer than 1.

        A bias has as many rows as numbers.
        """
        return next((size for size in self.shape if size > 1), 1)

    @property
    def is_matrix(self) -> bool:
        """Whether the block is a weight that multiplies features, not a bias, norm or embedding."""
        return self.kind in BLOCK_KINDS[:3]


class BlockTable(Sequence[Block]):
    """An immutable sequence of blocks with look-up by name. Two tables are equal when their blocks are."""

    def __init__(self, blocks: Iterable[Block]) -> None:
        self._blocks = tuple(blocks)
        self._index = {block.name: m for m, block in enumerate(self._blocks)}
        if len(self._index) != len(self._blocks):
            raise BankError("a block name appears twice. Give each parameter of the tower once.")

    @property
    def names(self) -> tuple[str, ...]:
        """The blocks' names, in order."""
        return tuple(self._index)

    @property
    def numel(self) -> int:
        """P, the number of parameters in all blocks together."""
        return sum(block.numel for block in self._blocks)

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of names and shapes: towers whose vectors can be mixed have the same one."""
        text = "\n".join(f"{block.name} {block.shape}" for block in self._blocks)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def index(self, name: object, start: int = 0, stop: int | None = None) -> int:
        """The position of a block, given its name (or the block itself)."""
        key = name.name if isinstance(name, Block) else str(name)
        m = self._index.get(key)
        if m is None or not start <= m < (len(self) if stop is None else stop):
            raise BankError(unknown_name("block", key, self._index))
        return m

    def __len__(self) -> int:
        return len(self._blocks)

    def __iter__(self) -> Iterator[Block]:
        return iter(self._blocks)

    @overload
    def __getitem__(self, item: int) -> Block: ...

    @overload
    def __getitem__(self, item: slice) -> BlockTable: ...

    def __getitem__(self, item: int | slice) -> Block | BlockTable:
        return BlockTable(self._blocks[item]) if isinstance(item, slice) else self._blocks[item]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockTable) and self._blocks == other._blocks

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"BlockTable({len(self)} blocks, {self.numel / 1e6:.2f} M parameters)"


def block_table(named_parameters: Iterable[tuple[str, Tensor]]) -> BlockTable:
    """The block table of an image tower, from its own named parameters.

    Given the parameters of a whole CLIP, those under `visual.` are taken and the text tower is left out.
    Buffers (BatchNorm statistics) are not parameters and never enter.
    """
    shapes = _tower_shapes((name, tuple(tensor.shape)) for name, tensor in named_parameters)
    kinds = {name: _kind(name, shapes) for name in shapes}
    layers = _layers(kinds)
    return BlockTable(Block(name, shape, layers[name], kinds[name]) for name, shape in shapes.items())


def _tower_shapes(named_shapes: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    shapes = dict(named_shapes)
    inside = {n.removeprefix(TOWER_PREFIX): s for n, s in shapes.items() if n.startswith(TOWER_PREFIX)}
    tower = inside or shapes
    if not tower:
        raise BankError("the image tower has no parameters. Pass model.visual.named_parameters().")
    if any(name.startswith("token_embedding") for name in tower):
        raise BankError("these are a text tower's parameters. Pass model.visual.named_parameters() instead.")
    return tower


def _kind(name: str, shapes: dict[str, tuple[int, ...]]) -> str:
    """One of BLOCK_KINDS, from the block's name and number of dimensions."""
    path, _, leaf = name.rpartition(".")
    ndim = len(shapes[name])
    if re.search(
        r"(^|\.)(class_embedding|positional_embedding|cls_token|reg_token|pos_embed)$|embed(ding)?s?\.", name
    ):
        return "conv" if "patch_embed" in name and ndim == 4 else _small_kind(leaf, path, shapes, "embedding")
    if ndim >= 3:
        return "conv" if leaf == "weight" else "embedding"
    if ndim == 2:
        return "projection" if re.search(r"^(proj|head\.|trunk\.head\.|attnpool\.c_proj)", name) else "matrix"
    return _small_kind(leaf, path, shapes, "scale")


def _small_kind(leaf: str, path: str, shapes: dict[str, tuple[int, ...]], default: str) -> str:
    """`norm` for a one-dimensional weight and the bias of the same module, `bias` for another bias."""
    weight = shapes.get(f"{path}.weight", ())
    if leaf in ("weight", "bias") and len(weight) == 1:
        return "norm"
    return "bias" if leaf.endswith("bias") else default


_POSITION = re.compile(
    r"(?:^|\.)(?:resblocks|blocks|layers|stages|layer(?=\d))\.?(\d+)(?:\.(?:blocks\.)?(\d+)(?=\.))?"
)


def _layers(kinds: dict[str, str]) -> dict[str, int]:
    """Depth by name: numbered containers in order are 1 … L; what comes before is 0, after L + 1."""
    positions = {name: _position(name) for name in kinds}
    depth = {position: i + 1 for i, position in enumerate(sorted({p for p in positions.values() if p}))}
    layers: dict[str, int] = {}
    after_stem = False
    for name, position in positions.items():
        if position is not None:
            after_stem = True
            layers[name] = depth[position]
        else:
            layers[name] = len(depth) + 1 if after_stem or kinds[name] == "projection" else 0
    return layers


def _position(name: str) -> tuple[int, int] | None:
    """The numbers in a block's name, such as (3, 1) of `layer3.1.conv1.weight`, or None without any."""
    found = _POSITION.search(name)
    return (int(found[1]), int(found[2] or -1)) if found else None
