"""Suite `tiers`: a few-shot run with a budget from 500 vectors on disk, against one from 20 in memory.

Both banks are the bundled one filled up with dummies (`studies.banks.dummy`), so that the same images choose
vectors of the same size. The bank of 20 is resident, which is as fast as a budget can be. Of the bank of 500
the index is warm: it was made before the clock starts. Its vectors are either in memory, from the run before,
or read from the disk in every run (from the system's page cache, where memory allows).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from atlas_engine.bank import save_bank
from atlas_engine.bank.bank_file import BankFile
from atlas_engine.bank.tiered import TieredBank
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.engine import open as open_atlas
from atlas_engine.errors import EvalError
from studies.banks.dummy import dummy_bank
from studies.speed.measure import compare
from studies.speed.predict import CLASSES, noise_images
from studies.speed.report import Bar, Report

__all__ = ["tiers"]

FEW, MANY = 20, 500
BUDGET, SHOTS = 8, 4
METHODS = ("atlas", "auto")
TO_FEW, TO_LOADING = 1.2, 0.5  # the bars
MEMORY_MIB, LARGE_MIB = 256.0, 1e6


def tiers(*, few: int = FEW, many: int = MANY, repeat: int = 5) -> Report:
    """Time runs of two methods with both banks, and the opening of the large one."""
    labels = tuple(label for label in range(len(CLASSES)) for _ in range(SHOTS))
    support = Support(tuple(noise_images(len(labels))), labels, CLASSES)
    with tempfile.TemporaryDirectory(prefix="atlas-tiers-") as folder, open_atlas(cache=False) as bundled:
        paths = {count: Path(folder, f"{count}.safetensors") for count in (few, many)}
        for count, path in paths.items():
            save_bank(dummy_bank(bundled.bank, vectors=count), path)
        nbytes = paths[many].stat().st_size
        backbone = bundled.backbone
        engines = {
            "few": Atlas(backbone, bank_path=paths[few], bank_memory=LARGE_MIB),
            "memory": Atlas(backbone, bank_path=paths[many], bank_memory=min(MEMORY_MIB, nbytes / 2**21)),
            "disk": Atlas(backbone, bank_path=paths[many], bank_memory=0.0),
        }
        _require_tiers(engines)
        bars, notes = [], {"bank": f"{many} vectors, {nbytes / 1e6:.0f} MB, header {_header(paths[many])}"}
        for method in METHODS:
            candidates: dict[str, Callable[[], Tensor]] = {
                name: _run(engine, support, method) for name, engine in engines.items()
            }
            found = compare(candidates, check=_is_sound, warmup=1, repeat=repeat, peaks=False)
            for name, words in (("memory", "vectors in memory"), ("disk", "vectors from disk")):
                label = f"{method}, budget {BUDGET}: {many} vectors to {few}, {words}"
                bars.append(Bar(label, found.ratio(name, "few"), "<=", TO_FEW))
            notes |= {f"{method}, {name}": str(timing) for name, timing in found.timings.items()}
        opening = compare(
            {"open": lambda: _open(paths[many]), "load": lambda: _load(paths[many])},
            check=lambda count: count == many,
            warmup=1,
            repeat=repeat,
            peaks=False,
        )
        bars.append(
            Bar(f"opening {many} vectors, to loading them", opening.ratio("open", "load"), "<=", TO_LOADING)
        )
        notes |= {f"{name} {many}": str(timing) for name, timing in opening.timings.items()}
        for engine in engines.values():
            engine.close()
    return Report(
        name="tiers",
        what=f"engine.few_shot of {len(CLASSES)} classes × {SHOTS} images with budget={BUDGET}, "
        "bundled model and its bank filled up with dummies",
        ceiling=f"{few} vectors, resident: 1",
        bars=tuple(bars),
        notes=notes,
    )


def _run(engine: Atlas, support: Support, method: str) -> Callable[[], Tensor]:
    return lambda: engine.few_shot(support, method=method, budget=BUDGET).result().coefficients.values


def _is_sound(values: Tensor) -> bool:
    return bool(values.isfinite().all())


def _require_tiers(engines: dict[str, Atlas]) -> None:
    """Raise unless the banks are where the suite says; opening them makes the index."""
    for name, engine in engines.items():
        if isinstance(engine.bank, TieredBank) != (name != "few"):
            raise EvalError(f"the bank of '{name}' is not in the tier that is to be timed.")


def _open(path: Path) -> int:
    bank = TieredBank.open(path, memory_nbytes=0)
    bank.close()
    return len(bank)


def _load(path: Path) -> int:
    with BankFile(path) as file:
        return len(file.load())


def _header(path: Path) -> str:
    with BankFile(path) as file:
        return f"{(path.stat().st_size - file.nbytes) / 1e6:.1f} MB"
