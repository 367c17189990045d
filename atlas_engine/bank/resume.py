"""The state of an unfinished fine-tuning, in one file that is whole or absent.

The file names the training it belongs to: base, head, data and settings. A file of another training is
refused, so that neither is lost by accident.
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

__all__ = ["FineTuneState", "StateFile", "remove_state", "training_identity"]

FORMAT = "atlas-training-1"
MOMENTS = ("exp_avg", "exp_avg_sq")  # as torch's AdamW calls them
SETTINGS_WITHOUT_EFFECT = ("save_every",)


@dataclass(frozen=True, eq=False)
class FineTuneState:
    """How far a training has come, and the leaves that were best on the validation split."""

    index: int = 0  # steps done
    misses: int = 0  # measurements since the best
    best_step: int = 0
    best_accuracy: float | None = None
    best_loss: float | None = None
    best: Mapping[str, Tensor] | None = None

    def with_measurement(self, accuracy: float, loss: float, leaves: Mapping[str, Tensor]) -> FineTuneState:
        """The state after one more measurement. Higher accuracy is better; a tie goes to the lower loss."""
        best = (-1.0, 0.0) if self.best_accuracy is None else (self.best_accuracy, -(self.best_loss or 0.0))
        if (accuracy, -loss) <= best:
            return replace(self, misses=self.misses + 1)
        return FineTuneState(self.index, 0, self.index, accuracy, loss, leaves)

    def as_dict(self) -> dict[str, float | None]:
        """All but the leaves, as plain JSON types."""
        names = ("index", "misses", "best_step", "best_accuracy", "best_loss")
        return {name: getattr(self, name) for name in names}


def training_identity(
    theta0: Mapping[str, Tensor], *, head: Tensor, data: Sequence[Tensor], settings: Settings
) -> dict[str, object]:
    """What makes a training: hashes of base, head and data, and every setting that its result depends on."""
    chosen = {k: value for k, value in settings.as_dict().items() if k not in SETTINGS_WITHOUT_EFFECT}
    return {"base model": fingerprint(theta0), "head": _hash([head]), "data": _hash(data), **chosen}


class StateFile:
    """Where a training is saved and resumed from; without a path, nowhere."""

    def __init__(self, path: Path | None, identity: Mapping[str, object]) -> None:
        self._path, self._identity = path, dict(identity)

    def save(self, tunable: TunableTower, optimiser: torch.optim.AdamW, state: FineTuneState) -> None:
        """Write the state in place of the one before; a kill leaves the one or the other."""
        if self._path is None:
            return
        tensors = {f"leaf/{name}": leaf.detach() for name, leaf in tunable.leaves.items()}
        for name, leaf in tunable.leaves.items():
            tensors |= {f"{m}/{name}": optimiser.state[leaf][m] for m in MOMENTS if leaf in optimiser.state}
        tensors |= {f"best/{name}": leaf for name, leaf in (state.best or {}).items()}
        manifest = {"whose": self._identity, "progress": state.as_dict()}
        write_tensors(self._path, tensors, manifest=manifest, format_name=FORMAT)

    def restore(self, tunable: TunableTower, optimiser: torch.optim.AdamW) -> FineTuneState:
        """The saved state, with leaves and moments put back in place; a fresh state if none is saved."""
        if self._path is None or not self._path.exists():
            return FineTuneState()
        with _open_state(self._path) as file:
            self._require_same_training(self._path, file.manifest["whose"])
            tensors = dict(file.read_all())
            progress = file.manifest["progress"]
        tunable.load_state(_with_prefix(tensors, "leaf/"))
        for name, leaf in tunable.leaves.items():
            if f"{MOMENTS[0]}/{name}" in tensors:
                moments = {m: tensors[f"{m}/{name}"].to(leaf.device) for m in MOMENTS}
                optimiser.state[leaf] = {"step": torch.tensor(float(progress["index"])), **moments}
        best = {n: leaf.to(tunable.leaves[n].device) for n, leaf in _with_prefix(tensors, "best/").items()}
        return FineTuneState(**progress, best=best or None)

    def _require_same_training(self, path: Path, saved: Mapping[str, object]) -> None:
        own = self._identity
        names = sorted(name for name in own.keys() | saved.keys() if own.get(name) != saved.get(name))
        if names:
            differences = [_difference(name, saved.get(name), own.get(name)) for name in names]
            raise BankError(
                f"{path.name} holds an unfinished training that is not this one: {', '.join(differences)}. "
                "Go on with that one by its own command, or remove the file (--restart) to start anew."
            )


def remove_state(path: Path) -> None:
    """Delete a saved training, and what a kill in the middle of a save left next to it."""
    for file in path.parent.iterdir():
        if file.name.startswith(f".{path.name}.") and file.suffix == ".part":
            file.unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def _open_state(path: Path) -> TensorFile:
    try:
        return TensorFile(path, format_name=FORMAT)
    except BankError as error:
        raise BankError(
            f"{path.name} should hold an unfinished training, but cannot be read. Remove it (--restart)."
        ) from error


def _with_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _difference(name: str, saved: object, own: object) -> str:
    return f"another {name}" if name in ("base model", "head", "data") else f"{name} {saved}, not {own}"


def _hash(tensors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.detach().cpu().contiguous()
        digest.update(f"{tuple(whole.shape)} {checksum(whole.reshape(-1).view(torch.uint8))}\n".encode())
    return digest.hexdigest()
