"""Methods without labels compared on problems of every data set, corruption and size: `atlas eval test-time`.

    solver = UnlabelledSolver(engine, bank=bank)
    settings = UnlabelledStudySettings()
    for row, fresh in run_unlabelled(solver, {"pets": folder}, settings=settings, ledger=Ledger()): ...
    row.accuracy, row.zero_shot, row.rolled_back

A method learns from the images that it then names, so accuracy is over these; zero-shot is measured on the
same. Labels are for the score alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch

from atlas_engine.adapt.settings import TestTimeConfig
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import class_prototypes
from studies.corruptions import Corruption
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.learning import PRODUCT, LearningSettings
from studies.methods import (
    AUTO,
    UNLABELLED_STUDY_METHODS,
    ZERO_SHOT,
    MethodAnswer,
    UnlabelledSolver,
    UnlabelledStudyMethod,
)
from studies.problems.draw import draw_classes, draw_per_class, read_pixels
from studies.problems.few_shot import unit_features
from studies.problems.unlabelled import PRESENT, UnlabelledPool, draw_unlabelled

__all__ = ["CLEAN", "WHOLE", "UnlabelledRow", "UnlabelledStudySettings", "name_by_images", "run_unlabelled"]

CLEAN = "none"
"""The corruption of a row whose images are as they are."""

WHOLE = "all"
"""The size of a problem of all images."""


@dataclass(frozen=True, kw_only=True)
class UnlabelledStudySettings(LearningSettings):
    """Which problems are drawn, which methods name their images, and how much those may learn."""

    methods: tuple[str, ...] = setting(
        (ZERO_SHOT, "ln-ufm", "ufm", "entropy", "sar", "simclr", AUTO),
        help="methods to compare, with commas between them",
        choices=tuple(UNLABELLED_STUDY_METHODS),
    )
    sizes: tuple[str, ...] = setting(
        ("5", "20", "100", WHOLE), help=f"images of a problem, numbers or {WHOLE}"
    )
    present: tuple[str, ...] = setting(
        PRESENT, help="whether every class or about a third may be among the images", choices=PRESENT
    )
    seeds: int = setting(3, help="draws from each folder", low=1)
    max_classes: int | None = setting(None, help="most classes that are asked for, drawn by seed", low=2)
    max_size: int | None = setting(None, help=f"most images that {WHOLE} stands for", low=1)
    prototypes: int = setting(
        0, help="images of a class whose mean stands for its name, for a tower that reads none", low=0
    )
    steps: int | None = setting(
        None, help="optimiser steps of all that train, or more for the epochs", low=0, unset=PRODUCT
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods", "sizes", "present")
        object.__setattr__(self, "sizes", _sorted_sizes(self.sizes))  # frozen: only here, as above

    def budget(self) -> TestTimeConfig | None:
        """The config of all that train; None leaves it to the product."""
        chosen = self.given()
        return TestTimeConfig(**chosen) if chosen else None

    def max_images(self, size: str) -> int | None:
        """The most images of a problem of this size; None where there is no limit."""
        return self.max_size if size == WHOLE else int(size)

    @property
    def cells(self) -> int:
        """How many rows a folder has under one corruption."""
        return self.seeds * len(self.present) * len(self.sizes) * len(self.methods)

    @property
    def most(self) -> int | None:
        """The most images of any problem; None where there is no limit."""
        counts = [self.max_images(size) for size in self.sizes]
        return None if None in counts else max(count or 0 for count in counts)


@dataclass(frozen=True)
class UnlabelledRow(StudyRow):
    """One method on one problem. `size` is as asked for, `images` how many there were."""

    dataset: str
    method: str
    size: int | str
    present: str
    corruption: str
    seed: int
    accuracy: float
    zero_shot: float
    rolled_back: bool
    seconds: float
    images: int
    kept: str = ""  # the method that a choice among several came to

    @property
    def change(self) -> float:
        """Accuracy above zero-shot, on the same images."""
        return self.accuracy - self.zero_shot


def run_unlabelled(
    solver: UnlabelledSolver,
    folders: Mapping[str, ClassFolder],
    *,
    corruptions: Sequence[Corruption | None] = (None,),
    settings: UnlabelledStudySettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[UnlabelledRow, bool]]:
    """Every row, and whether it was measured now."""

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[UnlabelledRow]]:
        own = solver
        if settings.prototypes:
            folder = draw_classes(folder, settings.max_classes, seed=seed)
            own, folder = name_by_images(solver, folder, settings.prototypes, seed=seed)
        drawn = draw_unlabelled(
            folder,
            solver.engine.backbone.preprocessing,
            max_images=settings.most,
            max_classes=settings.max_classes,
            present=settings.present,
            seed=seed,
        )
        for corruption in corruptions:
            trial = _UnlabelledTrial(own, drawn, dataset, corruption)
            for present, size, method in product(settings.present, settings.sizes, settings.methods):
                positions = drawn.positions(present, settings.max_images(size))
                yield trial.cell(UNLABELLED_STUDY_METHODS[method], positions, present, size)

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def name_by_images(
    solver: UnlabelledSolver, folder: ClassFolder, count: int, *, seed: int
) -> tuple[UnlabelledSolver, ClassFolder]:
    """The solver with the mean of `count` images of each class for its name, and the folder without those.

    What is called zero-shot are these prototypes then. A seed draws the images.
    """
    engine, items = solver.engine, draw_per_class(folder, count, seed=seed)
    pixels = read_pixels(items, engine.backbone.preprocessing)
    with torch.inference_mode():
        features = unit_features(engine, engine.backbone.visual, pixels)
        labels = torch.tensor([item.label for item in items], device=features.device)
        means = class_prototypes(features, labels, len(folder.classes)).clone()
    session = Atlas(
        engine.backbone,
        bank_path=lambda: engine.bank_path,
        class_embeddings=dict(zip(folder.display_names, means, strict=True)),
    )
    named = dataclasses.replace(
        solver,
        engine=session,
        bank=engine.bank if solver.bank is None and engine.bank_path else solver.bank,
        prototypes=hashlib.sha256(pixels.numpy().data).hexdigest(),
    )
    taken = {item.source for item in items}
    rest = tuple(item for item in folder.items if item.source not in taken)
    return named, dataclasses.replace(folder, items=rest)


class _UnlabelledTrial:
    """The images of one seed under one corruption; they are corrupted and named by zero-shot at most once."""

    def __init__(
        self, solver: UnlabelledSolver, drawn: UnlabelledPool, dataset: str, corruption: Corruption | None
    ) -> None:
        self.solver, self.drawn, self.dataset, self.corruption = solver, drawn, dataset, corruption
        self.corruption_name = CLEAN if corruption is None else str(corruption)

    @cached_property
    def shown(self) -> UnlabelledPool:
        """The images as methods see them."""
        return self.drawn if self.corruption is None else self.drawn.corrupted(self.corruption)

    @cached_property
    def zero_shot(self) -> MethodAnswer:
        """Of all images that were drawn."""
        every = range(len(self.drawn.labels))
        return UNLABELLED_STUDY_METHODS[ZERO_SHOT].solve(
            self.solver, self.shown.problem(every), self.drawn.seed
        )

    def cell(
        self, method: UnlabelledStudyMethod, positions: Sequence[int], present: str, size: str
    ) -> Cell[UnlabelledRow]:
        """Two problems of the same images are one measurement, whatever their `present` and `size` say."""
        return Cell(
            f"{self.dataset}, {self.corruption_name}, {size} image(s), {method.name}",
            (
                "test-time",
                self.solver.engine.fingerprint,
                self.drawn.digest(positions),
                self.corruption_name,
                self.drawn.seed,
                method.name,
                self.solver.facts(method),
            ),
            lambda: self.measure(method, positions, present, size).as_dict(),
            UnlabelledRow,
            {"dataset": self.dataset, "size": _row_size(size), "present": present},
        )

    def measure(
        self, method: UnlabelledStudyMethod, positions: Sequence[int], present: str, size: str
    ) -> UnlabelledRow:
        rows, seed = list(positions), self.drawn.seed
        labels = self.drawn.labels[rows]
        zero_shot = MethodAnswer(self.zero_shot.logits[rows], 0.0)
        learns = method.name != ZERO_SHOT
        answer = method.solve(self.solver, self.shown.problem(rows), seed) if learns else zero_shot
        return UnlabelledRow(
            dataset=self.dataset,
            method=method.name,
            size=_row_size(size),
            present=present,
            corruption=self.corruption_name,
            seed=seed,
            accuracy=answer.accuracy(labels),
            zero_shot=zero_shot.accuracy(labels),
            rolled_back=answer.fell_back,
            seconds=answer.seconds,
            images=len(labels),
            kept=answer.kept,
        )


def _sorted_sizes(sizes: Sequence[str]) -> tuple[str, ...]:
    """Numbers from small to large, each once, and `all` last.

    >>> _sorted_sizes(["all", "20", "5", "05"])
    ('5', '20', 'all')
    """
    numbers = [size for size in sizes if size != WHOLE]
    for size in numbers:
        if not (size.isdecimal() and int(size)):
            raise ConfigError(
                f"UnlabelledStudySettings.sizes has '{size}' but each must be a number of at least 1, or "
                f"'{WHOLE}'."
            )
    whole = [WHOLE] if WHOLE in sizes else []
    return (*map(str, sorted(set(map(int, numbers)))), *whole)


def _row_size(text: str) -> int | str:
    """The size as a row says it: a number, or `all`."""
    return text if text == WHOLE else int(text)
