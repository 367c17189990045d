"""How a session opens its bank: resident as it is stored, resident in fewer bits, or left on disk.

open_bank(path, backbone)      # a `TaskVectorBank`, or a `TieredBank` where the file is large
"""

from __future__ import annotations

import logging
from pathlib import Path

from atlas_engine.adapt.memory_plan import memory_to_use, plan_few_shot
from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import BankFile
from atlas_engine.bank.tiered import TieredBank
from atlas_engine.clip.backbone import Backbone
from atlas_engine.config import bank_memory
from atlas_engine.errors import BankError
from atlas_engine.files import human_nbytes

__all__ = ["load_within_memory", "open_bank"]

_log = logging.getLogger(__name__)

SMALL_RUN = 8  # images: a bank that leaves no room for them is of no use


def open_bank(
    path: Path, backbone: Backbone, *, memory_limit: float | None = None, shared: bool = False
) -> TaskVectorBank:
    """The bank of a file for this model: resident or, where it is larger than `memory_limit` MiB, on disk.

    By default the limit is ATLAS_BANK_MEMORY, or 1024 MiB. On a CPU a `shared` bank is the mapped file,
    whatever its size: the system keeps the pages that are used, once for all processes.
    """
    if shared and backbone.device.type == "cpu":
        with BankFile(path) as file:
            return file.load(shared=True)
    limit = int((bank_memory() if memory_limit is None else memory_limit) * 2**20)
    if not path.is_file() or path.stat().st_size <= limit:
        return load_within_memory(path, backbone)
    return TieredBank.open(
        path,
        device=backbone.device,
        memory_nbytes=limit,
        load=lambda: load_within_memory(path, backbone),
    )


def load_within_memory(path: Path, backbone: Backbone) -> TaskVectorBank:
    """The bank of a file on the model's device: as it is stored, or narrower where a GPU is short of memory.

    There must be room beside it for a small run of `auto` with one training. `BankError` where even the
    narrowest storage leaves none.
    """
    limit = memory_to_use(backbone.device, None)
    with BankFile(path) as file:
        if limit is None:
            return file.load(backbone.device)
        plan = plan_few_shot(
            backbone,
            find_method("few-shot", AUTO),
            tasks=len(file.tasks),
            storage=file.storage,
            images=SMALL_RUN,
            batch=SMALL_RUN,
            views=1,
            runs=1,
            limit_nbytes=limit,
        )
        vectors, storage = plan.chosen
        if not plan.fits or vectors < len(file.tasks):
            raise BankError(
                f"there are {human_nbytes(limit)} of memory for {backbone.name}, its {len(file.tasks)} task "
                f"vectors and a run, which need {human_nbytes(plan.nbytes)} or more even with {vectors} in "
                f"{storage}. Give more memory, or make a bank of fewer vectors, or of low rank: "
                "`atlas bank compress`."
            )
        if storage == file.storage:
            return file.load(backbone.device)
        _log.warning(
            "the bank is stored as %s and used as %s: %s of memory do not hold it and a run otherwise.",
            file.storage,
            storage,
            human_nbytes(limit),
        )
        return file.load().stored_as(storage).to(backbone.device)
