"""A task vector: what fine-tuning changed in an image tower, block by block.

τ = θ_fine-tuned − θ0            (Ilharco et al. 2023; aTLAS, arXiv 2407.02880, section 2)

cars = TaskVector.between("cars", base=theta0, tuned=theta_cars)
cars.norm(), cars.cosine(signs), cars + signs
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from atlas_engine.bank.blocks import BlockTable, block_table
from atlas_engine.errors import BankError, unknown_name

__all__ = [
    "LINEAR",
    "LORA",
    "STANDARD",
    "VECTOR_KINDS",
    "TaskVector",
    "VectorInfo",
    "check_kind",
    "common_kind",
    "fingerprint",
]

STANDARD, LORA, LINEAR = "standard", "lora", "linear"
VECTOR_KINDS = (STANDARD, LORA, LINEAR)
"""How a vector was made: by plain fine-tuning, as low-rank factors, or on the tower's tangent at θ0.

Standard and LoRA vectors are added to the weights, and may be mixed. Linear ones are composed by jvp
(`compose.linearised`), and only with each other.
"""


@dataclass(frozen=True)
class VectorInfo:
    """What is known of a vector besides its numbers; written to the bank file's manifest."""

    dataset: str = ""
    accuracy_before: float | None = None
    accuracy_after: float | None = None
    centroid: tuple[float, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""
    """The content hash of the vector as it was made; it stays with it through every storage format."""
    kind: str = STANDARD
    """How it was made, one of `VECTOR_KINDS`."""

    def __post_init__(self) -> None:
        check_kind(self.kind)


def check_kind(kind: str) -> str:
    """The same, if it is one of `VECTOR_KINDS`."""
    if kind not in VECTOR_KINDS:
        raise BankError(unknown_name("kind of vector", str(kind), VECTOR_KINDS))
    return kind


def common_kind(kinds: Mapping[str, str]) -> str:
    """The kind of a bank whose vectors are of these kinds, by name; a BankError where they do not mix.

    >>> common_kind({"cars": "lora", "signs": "standard"})
    'standard'
    """
    found = set(kinds.values())
    if LINEAR in found and len(found) > 1:
        linear = next(name for name, kind in kinds.items() if kind == LINEAR)
        other = next(name for name, kind in kinds.items() if kind != LINEAR)
        raise BankError(
            f"'{linear}' is a linear vector but '{other}' is a {kinds[other]} one, and the two do not mix: "
            "linear vectors are composed on the tower's tangent, others as weights. Make a bank of each."
        )
    return found.pop() if len(found) == 1 else STANDARD


@dataclass(frozen=True, eq=False)
class TaskVector:
    """A named difference of weights, tied by fingerprint to the base it was taken from."""

    name: str
    blocks: Mapping[str, Tensor]
    base: str
    info: VectorInfo = VectorInfo()

    @classmethod
    def between(
        cls,
        name: str,
        *,
        base: Mapping[str, Tensor],
        tuned: Mapping[str, Tensor],
        info: VectorInfo | None = None,
    ) -> TaskVector:
        """τ = tuned − base, from two checkpoints of the same image tower (or whole CLIP).

        `base` decides which names are blocks: pass `dict(model.visual.named_parameters())`. Anything more in
        `tuned`, such as buffers or a text tower, is left out; a block that is missing or has another shape is
        an error.
        """
        table = block_table(base.items())
        theta0, theta = _tower_part(base), _tower_part(tuned)
        shapes = {block.name: block.shape for block in table}
        found = {n: tuple(theta[n].shape) for n in shapes if n in theta}
        _require_same_shapes(f"checkpoint '{name}' against its base", shapes, found)
        blocks = {n: theta[n].detach().float() - theta0[n].detach().float() for n in shapes}
        _require_finite(name, blocks)
        return cls(name, blocks, fingerprint(theta0), info or VectorInfo())

    @cached_property
    def table(self) -> BlockTable:
        """The vector's own block table."""
        return block_table(self.blocks.items())

    def __add__(self, other: TaskVector) -> TaskVector:
        self.require_mixable(other)
        kind = common_kind({self.name: self.info.kind, other.name: other.info.kind})
        blocks = {name: tensor + other.blocks[name] for name, tensor in self.blocks.items()}
        return TaskVector(f"{self.name}+{other.name}", blocks, self.base, VectorInfo(kind=kind))

    def digest(self) -> str:
        """The content hash of the vector as it was made: a stored copy keeps that of its original."""
        return self.info.digest or _content_hash(self.blocks)

    def norm(self) -> float:
        """‖τ‖ over all blocks."""
        return math.sqrt(self.dot(self))

    def dot(self, other: TaskVector) -> float:
        """⟨τ, τ'⟩ over all blocks."""
        self.require_mixable(other)
        return math.fsum(
            torch.dot(tensor.flatten().double(), other.blocks[name].flatten().double()).item()
            for name, tensor in self.blocks.items()
        )

    def cosine(self, other: TaskVector) -> float:
        """⟨τ, τ'⟩ / ‖τ‖ ‖τ'‖, and 0 when either is zero."""
        scale = self.norm() * other.norm()
        return self.dot(other) / scale if scale else 0.0

    def require_mixable(self, other: TaskVector) -> None:
        """Raise unless both vectors have the same blocks and were taken from the same base."""
        what = f"task vectors '{self.name}' and '{other.name}'"
        mine, theirs = ({n: tuple(t.shape) for n, t in v.blocks.items()} for v in (self, other))
        _require_same_shapes(what, mine, theirs)
        if self.base != other.base:
            raise BankError(
                f"{what} were taken from different base models ({self.base[:12]} and {other.base[:12]}). "
                "Only vectors of one base can be mixed."
            )

    def __repr__(self) -> str:
        return f"TaskVector('{self.name}', {len(self.blocks)} blocks, base {self.base[:12]})"


def fingerprint(theta0: Mapping[str, Tensor]) -> str:
    """The content hash (sha256) of a base image tower: names, shapes, dtypes and bytes of its blocks."""
    tower = _tower_part(theta0)
    return _content_hash({name: tower[name] for name in block_table(theta0.items()).names})


def _content_hash(tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, tensor in tensors.items():
        stored = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {tuple(stored.shape)} {stored.dtype}\n".encode())
        digest.update(stored.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _tower_part(state: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The image tower's weights in a whole CLIP, without the prefix; a tower alone as it is."""
    inside = {n.removeprefix("visual."): t for n, t in state.items() if n.startswith("visual.")}
    return inside or state


def _require_same_shapes(
    what: str, wanted: Mapping[str, tuple[int, ...]], found: Mapping[str, tuple[int, ...]]
) -> None:
    problems = [f"{n} is missing" for n in wanted if n not in found]
    problems += [f"{n} is not expected" for n in found if n not in wanted]
    problems += [
        f"{n} is {found[n]}, needs {shape}" for n, shape in wanted.items() if n in found and found[n] != shape
    ]
    if problems:
        raise BankError(f"{what}: {_join_some(problems)}. Both must come from the same image tower.")


def _require_finite(name: str, blocks: Mapping[str, Tensor]) -> None:
    bad = [n for n, tensor in blocks.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        raise BankError(
            f"checkpoint '{name}' holds NaN or infinity in {_join_some(bad)}. Its training diverged."
        )


def _join_some(items: Iterable[str], limit: int = 5) -> str:
    """The first few items and how many more there are: `a, b, c, d, e and 7 more`."""
    every = list(items)
    more = f" and {len(every) - limit} more" if len(every) > limit else ""
    return ", ".join(every[:limit]) + more
