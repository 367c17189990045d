"""The state of an unfinished training, in one file that is whole or absent. Knows nothing of what is learned.

A state says whose it is: base, head, data and settings. One that belongs to another training is refused, so
that neither is lost by accident.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from atlas_engine.bank.tensor_file import TensorFile, checksum, write_tensors
from atlas_engine.bank.tunable import TunableTower
from atlas_engine.bank.vector import fingerprint
from atlas_engine.config import Settings
from atlas_engine.errors import BankError

__all__ = ["FineTuneState", "StateFile", "identity", "remove_state"]

FORMAT = "atlas-training-1"
MOMENTS = ("exp_avg", "exp_avg_sq")  # as torch's AdamW calls them
NEVER_MATTERS = ("save_every",)


@dataclass(frozen=True, eq=False)
class FineTuneState:
    """How far a training has come, and the best leaves it has had on the validation split."""

    index: int = 0
    misses: int = 0  # measurements since the best
    best_step: int = 0
    best_accuracy: float | None = None
    best_loss: float | None = None
    best: Mapping[str, Tensor] | None = None

    def measured(self, accuracy: float, loss: float, leaves: Mapping[str, Tensor]) -> FineTuneState:
        """With one more measurement; the better accuracy wins, and of two equal ones the lower loss."""
        best = (-1.0, 0.0) if self.best_accuracy is None else (self.best_accuracy, -(self.best_loss or 0.0))
        if (accuracy, -loss) <= best:
            return replace(self, misses=self.misses + 1)
        return FineTuneState(self.index, 0, self.index, accuracy, loss, leaves)

    def facts(self) -> dict[str, float | None]:
        """All but the leaves, as JSON takes it."""
        names = ("index", "misses", "best_step", "best_accuracy", "best_loss")
        return {name: getattr(self, name) for name in names}


def identity(
    theta0: Mapping[str, Tensor], *, head: Tensor, data: Sequence[Tensor], settings: Settings
) -> dict[str, object]:
    """What a training is: the prints of base, head and data, and every setting that its result depends on."""
    facts = {name: value for name, value in settings.as_dict().items() if name not in NEVER_MATTERS}
    return {"base model": fingerprint(theta0), "head": _print([head]), "data": _print(data), **facts}


class StateFile:
    """Where a training is saved and taken up; with no path, nowhere."""

    def __init__(self, path: Path | None, whose: Mapping[str, object]) -> None:
        self._path, self._whose = path, dict(whose)

    def save(self, model: TunableTower, optimiser: torch.optim.AdamW, done: FineTuneState) -> None:
        """Write the state in place of the one before; a kill leaves the one or the other."""
        if self._path is None:
            return
        tensors = {f"leaf/{name}": leaf.detach() for name, leaf in model.leaves.items()}
        for name, leaf in model.leaves.items():
            tensors |= {f"{m}/{name}": optimiser.state[leaf][m] for m in MOMENTS if leaf in optimiser.state}
        tensors |= {f"best/{name}": leaf for name, leaf in (done.best or {}).items()}
        manifest = {"whose": self._whose, "progress": done.facts()}
        write_tensors(self._path, tensors, manifest=manifest, format_name=FORMAT)

    def restore(self, model: TunableTower, optimiser: torch.optim.AdamW) -> FineTuneState:
        """Put the saved state back, and say how far it had come; nothing is saved: the beginning."""
        if self._path is None or not self._path.exists():
            return FineTuneState()
        with _opened(self._path) as file:
            self._require_mine(file.manifest["whose"])
            kept = dict(file.read_all())
            facts = file.manifest["progress"]
        model.restore(_under(kept, "leaf/"))
        for name, leaf in model.leaves.items():
            if f"{MOMENTS[0]}/{name}" in kept:
                moments = {m: kept[f"{m}/{name}"].to(leaf.device) for m in MOMENTS}
                optimiser.state[leaf] = {"step": torch.tensor(float(facts["index"])), **moments}
        best = {name: tensor.to(model.leaves[name].device) for name, tensor in _under(kept, "best/").items()}
        return FineTuneState(**facts, best=best or None)

    def _require_mine(self, other: Mapping[str, object]) -> None:
        mine = self._whose
        wrong = [name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)]
        if wrong:
            told = [_difference(name, other.get(name), mine.get(name)) for name in sorted(wrong)]
            assert self._path is not None
            raise BankError(
                f"{self._path.name} holds an unfinished training that is not this one: {', '.join(told)}. "
                "Go on with that one by its own command, or remove the file (--restart) to start anew."
            )


def remove_state(path: Path) -> None:
    """Forget a training: its state, and what a kill in the middle of a save left beside it."""
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.") and file.suffix == ".part":
            file.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _opened(path: Path) -> TensorFile:
    try:
        return TensorFile(path, format_name=FORMAT)
    except BankError as error:
        raise BankError(
            f"{path.name} should hold an unfinished training, but cannot be read. Remove it (--restart)."
        ) from error


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _difference(name: str, theirs: object, mine: object) -> str:
    return f"another {name}" if name in ("base model", "head", "data") else f"{name} {theirs}, not {mine}"


def _print(tensors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        digest.update(f"{tuple(whole.shape)} {checksum(whole.reshape(-1).view(torch.uint8))}\n".encode())
    return digest.hexdigest()
