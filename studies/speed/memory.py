"""Suite `memory`: the peak memory of a run, against what the planner says of it (`adapt.memory_plan`).

A ViT-L/14 at half of its width, depth and image size with 20 vectors in int4, `auto` on 2 classes × 4 images,
all trainings side by side, and one after another. The run has a process of its own. Measured is the most that
the process holds during the run beyond what it holds with its libraries alone, so tower and bank are counted.
The bar leaves freed memory to the system. Sessions of `atlas.open` keep it for the next tensor, which makes
them faster; what that costs is in the notes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass

from atlas_engine.adapt.memory_plan import plan_few_shot
from atlas_engine.adapt.methods import AUTO, find_method
from atlas_engine.adapt.settings import FewShotConfig, effective_few_shot_config
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.engine import Atlas
from atlas_engine.errors import EvalError
from atlas_engine.runtime import keep_memory
from studies.speed.measure import peak_nbytes
from studies.speed.report import Bar, Report
from studies.speed.separate import nbytes_at_rest
from studies.speed.vit import SMALL_VIT_L_14, VitShape, noise_support, open_random_vit

__all__ = ["MeasuredRun", "measure_run", "memory"]

VECTORS, STORAGE = 20, "int4"
STEPS = 2  # the second has what the first one left behind
NO_LIMIT = 2**60
MOST, LEAST = 1.1, 0.9  # the bars
WARM_UP = VitShape("small", width=256, layers=1, patch=14, pixels=28, embedding=32)
"""Large enough for the machine code of the bank's kernels, which is loaded once."""


@dataclass(frozen=True)
class MeasuredRun:
    """What one run needs of memory by its plan, and what it held at its peak, in bytes."""

    planned_nbytes: int
    peak_nbytes: int
    items: dict[str, int]
    steps: int


def memory(*, shape: VitShape = SMALL_VIT_L_14, steps: int = STEPS) -> Report:
    """Hold plans against measured peaks, each run in a process of its own; ten minutes and 4 GB."""
    cases = {"side by side": False, "one after another": True}
    found = {name: _in_own_process(shape, steps=steps, in_turn=in_turn) for name, in_turn in cases.items()}
    kept = _in_own_process(shape, steps=steps, kept=True)
    bars = []
    for name, one in found.items():
        ratio = one.planned_nbytes / one.peak_nbytes
        bars += [
            Bar(f"trainings {name}: planned / measured memory", ratio, "<=", MOST, "×"),
            Bar(f"trainings {name}: planned / measured memory", ratio, ">=", LEAST, "×"),
        ]
    return Report(
        name="memory",
        what=f"the memory of `auto`, {shape.name} shapes, {VECTORS} vectors in {STORAGE}, 2 × 4 images",
        ceiling="a plan that is the peak",
        bars=tuple(bars),
        notes={
            **{f"trainings {name}": _words(one) for name, one in found.items()},
            "items, side by side": ", ".join(
                f"{item} {_mib(nbytes)}" for item, nbytes in found["side by side"].items.items()
            ),
            "side by side, freed memory kept": _words(kept),
        },
    )


def measure_run(shape: VitShape, *, steps: int, in_turn: bool = False, kept: bool = False) -> MeasuredRun:
    """The plan and the peak of a run in this process, which should have done little before.

    `in_turn` gives it memory for one training at a time; `kept` keeps freed memory as `atlas.open` does.
    """
    if kept:
        keep_memory()
    config, taken = FewShotConfig(steps=steps), list[int]()

    def adapt(size: VitShape, engine: Atlas, bank: TaskVectorBank, limit: float | None = None) -> None:
        run = engine.few_shot(noise_support(size), bank=bank, config=config, memory_limit=limit)
        taken.append(len(run.result().history))

    # what the process holds with its libraries, threads and compiled code
    adapt(WARM_UP, *open_random_vit(WARM_UP, vectors=VECTORS, storage=STORAGE))
    at_rest = nbytes_at_rest()
    # the run, with its tower and its bank
    engine, bank = open_random_vit(shape, vectors=VECTORS, storage=STORAGE)
    method, images = find_method("few-shot", AUTO), len(noise_support(shape).labels)
    settings = effective_few_shot_config(config, method, images=images)
    plan = plan_few_shot(
        engine.backbone,
        method,
        tasks=VECTORS,
        storage=STORAGE,
        images=images,
        batch=settings.batch,
        views=min(settings.views, steps * settings.batch // images),  # no more than so few steps draw
        runs=1 if in_turn else settings.folds + 1,
        limit_nbytes=NO_LIMIT,
    )
    nbytes_at_rest()
    peak = peak_nbytes(lambda: adapt(shape, engine, bank, plan.nbytes / 2**20 if in_turn else None))
    if peak is None:
        raise EvalError("this system does not tell how much memory a process holds. Run it on Linux.")
    items = {item.name: item.nbytes for item in plan.items}
    return MeasuredRun(plan.nbytes, peak - at_rest, items, taken[-1])


def _in_own_process(shape: VitShape, **case: object) -> MeasuredRun:
    """`measure_run` in a Python process of its own, whose memory nobody has touched."""
    command = [sys.executable, "-m", "studies.speed.memory", json.dumps([asdict(shape), case])]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise EvalError(
            f"the process of the run ended with exit code {done.returncode}. Its own message, if any, stands "
            "above; with none, free some memory and run again."
        )
    return MeasuredRun(**json.loads(done.stdout))


def _words(one: MeasuredRun) -> str:
    return f"planned {_mib(one.planned_nbytes)}, measured {_mib(one.peak_nbytes)}, {one.steps} steps in all"


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.0f} MiB"


if __name__ == "__main__":
    asked_shape, asked_case = json.loads(sys.argv[1])
    sys.stdout.write(json.dumps(asdict(measure_run(VitShape(**asked_shape), **asked_case))))
