"""Test-time methods compared: each on rolls of every data set, damage, size and seed, each measured once.

    learner = Learner(engine, bank=bank)
    for row, fresh in run_rolls(learner, {"pets": folder}, settings=RollSettings(), ledger=Ledger()): ...
    row.accuracy, row.zero_shot, row.rolled_back

A method learns from the pictures that it then names, so accuracy is over these; zero-shot is measured on the
same. Labels are for the score alone. A row of the ledger knows all but the code that made it: after a change
of a method, take its lines out. Knows nothing of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import product
from typing import Any

from atlas_engine.adapt.unlabelled import TestTimeConfig
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import ConfigError
from studies.corruptions import Corruption
from studies.grid import Ledger, drop_repeats, key_of
from studies.methods import (
    AUTO,
    UNLABELLED_STUDY_METHODS,
    ZERO_SHOT,
    MethodAnswer,
    UnlabelledSolver,
    UnlabelledStudyMethod,
)
from studies.problems.rolls import PRESENT, DrawnImages, draw_rolls

__all__ = ["CLEAN", "WHOLE", "UnlabelledRow", "UnlabelledStudySettings", "run_unlabelled"]

CLEAN = "none"
"""What a row says of the damage where there is none."""

WHOLE = "all"
"""The size of a roll of every picture."""


@dataclass(frozen=True, kw_only=True)
class UnlabelledStudySettings(Settings):
    """Which rolls are drawn, which methods name their pictures, and how much those may learn."""

    methods: tuple[str, ...] = setting(
        (ZERO_SHOT, "ln-ufm", "ufm", "entropy", "sar", "simclr", AUTO),
        help="methods to compare, with commas between them",
        choices=tuple(UNLABELLED_STUDY_METHODS),
    )
    sizes: tuple[str, ...] = setting(
        ("5", "20", "100", WHOLE), help=f"pictures of a roll, numbers or {WHOLE}"
    )
    present: tuple[str, ...] = setting(
        PRESENT, help="whether every class or about a third may be among the pictures", choices=PRESENT
    )
    seeds: int = setting(3, help="draws from each folder", low=1)
    max_classes: int | None = setting(None, help="most classes that are asked for, drawn by seed", low=2)
    max_size: int | None = setting(None, help=f"most pictures that {WHOLE} stands for", low=1)
    steps: int | None = setting(None, help="optimiser steps of all that train; none is the product's", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods", "sizes", "present")
        object.__setattr__(self, "sizes", _in_order(self.sizes))  # frozen: only here, as above

    def budget(self) -> TestTimeConfig | None:
        """What is learned with; none where the product is to decide."""
        return None if self.steps is None else TestTimeConfig(steps=self.steps)

    def pictures(self, size: str) -> int | None:
        """The most pictures of a roll of this size; none where there is no limit."""
        return self.max_size if size == WHOLE else int(size)

    @property
    def cells(self) -> int:
        """How many rows a folder has under one damage."""
        return self.seeds * len(self.present) * len(self.sizes) * len(self.methods)

    @property
    def most(self) -> int | None:
        """Of the pictures of any roll; none where there is no limit."""
        counts = [self.pictures(size) for size in self.sizes]
        return None if None in counts else max(count or 0 for count in counts)


@dataclass(frozen=True)
class UnlabelledRow:
    """One method on one roll. `size` is as asked for, `images` how many there were; `kept` is what it did."""

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
    kept: str = ""

    @property
    def change(self) -> float:
        """Accuracy above zero-shot, on the same pictures."""
        return self.accuracy - self.zero_shot

    def as_dict(self) -> dict[str, Any]:
        """The row as plain JSON types."""
        return asdict(self)


def run_unlabelled(
    learner: UnlabelledSolver,
    folders: Mapping[str, ClassFolder],
    *,
    corruptions: Sequence[Corruption | None] = (None,),
    settings: UnlabelledStudySettings,
    ledger: Ledger,
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[UnlabelledRow, bool]]:
    """Every row, and whether it was measured now or is told again from the ledger; the first seed first."""
    shape = learner.engine.backbone.preprocessing
    for seed in range(settings.seeds):
        for dataset, folder in folders.items():
            on_start(f"{dataset}, reading")
            draw = draw_rolls(
                folder,
                shape,
                most=settings.most,
                max_classes=settings.max_classes,
                present=settings.present,
                seed=seed,
            )
            for corruption in corruptions:
                sitting = _Sitting(learner, draw, dataset, corruption)
                for present, size, method in product(settings.present, settings.sizes, settings.methods):
                    on_start(f"{dataset}, {sitting.damage}, {size} picture(s), {method}")
                    most = settings.pictures(size)
                    yield sitting.measured(
                        UNLABELLED_STUDY_METHODS[method], present, size, most=most, ledger=ledger
                    )


class _Sitting:
    """One draw under one damage; its pictures are damaged and named by zero-shot at most once."""

    def __init__(
        self, learner: UnlabelledSolver, draw: DrawnImages, dataset: str, corruption: Corruption | None
    ) -> None:
        self.learner, self.draw, self.dataset, self.corruption = learner, draw, dataset, corruption
        self.damage = CLEAN if corruption is None else str(corruption)

    @cached_property
    def shown(self) -> DrawnImages:
        return self.draw if self.corruption is None else self.draw.damaged(self.corruption)

    @cached_property
    def zero_shot(self) -> MethodAnswer:
        """Of every picture of the draw."""
        every = range(len(self.draw.labels))
        return UNLABELLED_STUDY_METHODS[ZERO_SHOT].solve(self.learner, self.shown.roll(every), self.draw.seed)

    def measured(
        self, method: UnlabelledStudyMethod, present: str, size: str, *, most: int | None, ledger: Ledger
    ) -> tuple[UnlabelledRow, bool]:
        """Two rolls of the same pictures are one measurement, whatever they are called."""
        places = self.draw.places(present, most)
        key = key_of(
            "test-time",
            self.learner.engine.fingerprint,
            self.draw.digest(places),
            self.damage,
            self.draw.seed,
            method.name,
            method.facts(self.learner),
        )
        fields, fresh = ledger.once(key, lambda: self._row(method, places, present, size).as_dict())
        called = {"dataset": self.dataset, "size": _size(size), "present": present}
        return UnlabelledRow(**fields | called), fresh

    def _row(self, method: UnlabelledStudyMethod, places: Sequence[int], present: str, size: str) -> UnlabelledRow:
        draw, labels = self.draw, self.draw.labels[list(places)]
        by_names = MethodAnswer(self.zero_shot.logits[list(places)], 0.0)
        is_zero_shot = method.name == ZERO_SHOT
        answer = by_names if is_zero_shot else method.solve(self.learner, self.shown.roll(places), draw.seed)
        return UnlabelledRow(
            dataset=self.dataset,
            method=method.name,
            size=_size(size),
            present=present,
            corruption=self.damage,
            seed=draw.seed,
            accuracy=answer.accuracy(labels),
            zero_shot=by_names.accuracy(labels),
            rolled_back=answer.fell_back,
            seconds=answer.seconds,
            images=len(labels),
            kept=answer.kept,
        )


def _in_order(sizes: Sequence[str]) -> tuple[str, ...]:
    """Numbers from small to large, each once, and all of them last.

    >>> _in_order(["all", "20", "5", "05"])
    ('5', '20', 'all')
    """
    numbers = [size for size in sizes if size != WHOLE]
    for size in numbers:
        if not (size.isdecimal() and int(size)):
            raise ConfigError(
                f"RollSettings.sizes has '{size}' but each must be a number of at least 1, or '{WHOLE}'."
            )
    whole = [WHOLE] if WHOLE in sizes else []
    return (*map(str, sorted(set(map(int, numbers)))), *whole)


def _size(text: str) -> int | str:
    """A number of pictures, or all of them."""
    return text if text == WHOLE else int(text)
