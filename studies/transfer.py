"""Methods that learned on one domain, measured on others: `atlas eval transfer`.

    for row, fresh in run_transfer(solver, {"photo": photos}, {"sketch": sketches}, settings=…, ledger=…):
        row.domain, row.accuracy

A method learns once from the shots of a source. The same model then answers for held-out images of the source
(at home), for every other folder that has the source's classes, and for the held-out images in fog, noise, …
(away). Nothing of the other domains is seen beforehand (aTLAS, arXiv 2407.02880, section 4.2).
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atlas_engine.adapt.settings import FewShotConfig
from atlas_engine.clip.backbone import Preprocessing
from atlas_engine.config import setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.errors import EvalError
from atlas_engine.views.heatmap import Grid
from studies.corruptions import CORRUPTIONS, Corruption
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.learning import LearningSettings
from studies.methods import STUDY_METHODS, ZERO_SHOT, LearnedModel, Solver, StudyMethod, find_study_method
from studies.problems.draw import draw_classes, draw_per_class, read_pixels, with_classes
from studies.problems.few_shot import Problem, StudySettings, draw_problem
from studies.tables import Mean, ResultTable, distinct, seed_mean, where

__all__ = [
    "COMPARED",
    "DAMAGES",
    "Domain",
    "TransferRow",
    "TransferSettings",
    "draw_domains",
    "matching_folders",
    "require_matching_classes",
    "run_transfer",
    "transfer_grid",
    "transfer_tables",
]

COMPARED = ("zero-shot", "tip", "lpp", "linear-probe", "finetune", "atlas", "atlas-half", "atlas+tip", "auto")
DAMAGES = ("gaussian-noise:3", "motion-blur:3", "fog:3", "jpeg:3")


@dataclass(frozen=True, kw_only=True)
class TransferSettings(LearningSettings):
    """Which problems are drawn, how their images are corrupted, which methods solve them, and how long."""

    shots: int = setting(16, help="images of a class to learn from", low=1)
    seeds: int = setting(3, help="problems drawn from each source", low=1)
    methods: tuple[str, ...] = setting(
        COMPARED, help="methods to compare, with commas between them", choices=tuple(STUDY_METHODS)
    )
    damages: tuple[str, ...] = setting(DAMAGES, help="what is done to images of the source, as fog:3")
    max_classes: int = setting(10, help="most classes of a problem", low=2)
    max_test: int = setting(150, help="most images of a domain to measure on", low=2)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "methods")
        object.__setattr__(
            self, "damages", tuple(dict.fromkeys(self.damages))
        )  # frozen: only here; may be ()
        for damage in self.damages:
            Corruption.parse(damage)

    def budget(self) -> FewShotConfig | None:
        """The config of all that train; None leaves it to the product."""
        chosen = self.given()
        return FewShotConfig(**chosen) if chosen else None

    def draws(self) -> StudySettings:
        """How a problem is drawn from a source."""
        return StudySettings(shots=self.shots, max_classes=self.max_classes, max_test=self.max_test)


@dataclass(frozen=True)
class TransferRow(StudyRow):
    """One method that learned on `source`, measured on one domain."""

    source: str
    domain: str
    method: str
    shots: int
    seed: int
    accuracy: float
    n_test: int
    seconds: float
    fell_back: bool

    @property
    def is_on_source(self) -> bool:
        """Whether the images are of the domain that was learned from."""
        return self.source == self.domain


@dataclass(frozen=True, eq=False)
class Domain:
    """Images to measure on, with the class numbers of the source."""

    name: str
    pixels: Tensor  # (N 3 S S) uint8
    labels: Tensor  # (N)

    @property
    def digest(self) -> str:
        """A hash of the pixels and labels."""
        digest = hashlib.sha256(repr(self.labels.tolist()).encode())
        digest.update(self.pixels.numpy().data)
        return digest.hexdigest()


def run_transfer(
    solver: Solver,
    sources: Mapping[str, ClassFolder],
    others: Mapping[str, ClassFolder],
    *,
    settings: TransferSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[TransferRow, bool]]:
    """Every row, and whether it was measured now."""
    methods = [find_study_method(name) for name in settings.methods]
    shape = solver.engine.backbone.preprocessing

    def cells_of(source: str, folder: ClassFolder, seed: int) -> Iterator[Cell[TransferRow]]:
        problem = draw_problem(folder, shape, settings=settings.draws(), seed=seed)
        domains = draw_domains(source, folder, problem, others, shape=shape, settings=settings)
        for method in methods:
            # learns at most once, and not at all where the ledger has a row for every domain
            learned = functools.cache(functools.partial(method.learn, solver, problem))
            for domain in domains:
                yield _cell(solver, method, problem, source=source, domain=domain, learned=learned)

    return run_grid(sources, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def _cell(
    solver: Solver,
    method: StudyMethod,
    problem: Problem,
    *,
    source: str,
    domain: Domain,
    learned: Callable[[], LearnedModel],
) -> Cell[TransferRow]:
    def measure() -> TransferRow:
        model = learned()
        return TransferRow(
            source=source,
            domain=domain.name,
            method=method.name,
            shots=min(problem.support.counts),
            seed=problem.seed,
            accuracy=model.answer(domain.pixels).accuracy(domain.labels),
            n_test=len(domain.labels),
            seconds=model.seconds,
            fell_back=model.fell_back,
        )

    facts = (solver.engine.fingerprint, problem.digest, problem.seed, method.name, solver.facts(method))
    return Cell(
        f"{source}, {method.name}",
        ("transfer", *facts, domain.digest),
        lambda: measure().as_dict(),
        TransferRow,
        {"source": source, "domain": domain.name},
    )


# ---- domains


def matching_folders(source: ClassFolder, others: Mapping[str, ClassFolder]) -> dict[str, ClassFolder]:
    """The folders that have every class of the source."""
    return {name: other for name, other in others.items() if set(source.classes) <= set(other.classes)}


def require_matching_classes(sources: Mapping[str, ClassFolder], others: Mapping[str, ClassFolder]) -> None:
    """Raise where a domain matches no source, before anything is measured."""
    used = {name for source in sources.values() for name in matching_folders(source, others)}
    for name in others:
        if name not in used:
            raise EvalError(
                f"{name} lacks classes of each source ({', '.join(sources)}), so nothing can be asked of it. "
                "Give a folder with sub-folders of the same names."
            )


def draw_domains(
    source: str,
    folder: ClassFolder,
    problem: Problem,
    others: Mapping[str, ClassFolder],
    *,
    shape: Preprocessing,
    settings: TransferSettings,
) -> list[Domain]:
    """The source's own test images, those of the other folders that match, and its own corrupted."""
    drawn = draw_classes(folder, settings.max_classes, seed=problem.seed)
    home = Domain(source, problem.pixels, problem.labels)
    away = [
        _other_domain(name, other, drawn.classes, shape=shape, most=settings.max_test, seed=problem.seed)
        for name, other in matching_folders(drawn, others).items()
    ]
    corrupted = [
        Domain(str(corruption), corruption(problem.pixels, seed=problem.seed), problem.labels)
        for corruption in map(Corruption.parse, settings.damages)
    ]
    return [home, *away, *corrupted]


def _other_domain(
    name: str, folder: ClassFolder, classes: tuple[str, ...], *, shape: Preprocessing, most: int, seed: int
) -> Domain:
    """Equally many images of each of these classes, numbered as they are here."""
    items = draw_per_class(with_classes(folder, classes), max(1, most // len(classes)), seed=seed)
    labels = torch.tensor([item.label for item in items])
    return Domain(name, read_pixels(items, shape), labels)


# ---- the report

Rows = Sequence[TransferRow]
Gain = Callable[[TransferRow], float]

HOME, OTHER, DAMAGED = "at home", "other style", "damaged"


def transfer_tables(rows: Rows) -> list[ResultTable]:
    """What each method gains and loses over all sources, and every source with its domains.

    A gain is the accuracy above zero-shot on the same images; what is lost away is the gain at home less the
    gain away.
    """
    each = [_source_table(source, where(rows, source=source)) for source in distinct(rows, "source")]
    gain, learned = _gain_over_zero_shot(rows), any(row.method != ZERO_SHOT for row in rows)
    return [_loss_table(rows, gain), *each] if gain is not None and learned else each


def transfer_grid(rows: Rows) -> Grid:
    """Methods × domains, at home and away: points above zero-shot, or accuracy without that."""
    gain = _gain_over_zero_shot(rows)
    methods = tuple(name for name in distinct(rows, "method") if gain is None or name != ZERO_SHOT)
    methods = methods or (ZERO_SHOT,)
    homes = distinct(rows, "source")
    away = tuple(name for name in distinct(rows, "domain") if name not in homes)
    number: Gain = gain or (lambda row: row.accuracy)
    values = tuple(
        tuple(100 * seed_mean(where(rows, method=method, domain=name), number).mean for name in homes + away)
        for method in methods
    )
    what = "Accuracy in %" if gain is None else "Accuracy above zero-shot in points"
    return Grid(
        "Learned on one domain, asked about others",
        methods,
        (*(f"{home} (home)" for home in homes), *away),
        values,
        number=".1f" if gain is None else "+.1f",
        about=f"{what}; mean of {len({row.seed for row in rows})} seed(s).",
    )


def _loss_table(rows: Rows, gain: Gain) -> ResultTable:
    """At home and away over all sources; other folders and corrupted images of the source apart."""
    lines = []
    for method in (name for name in distinct(rows, "method") if name != ZERO_SHOT):
        own = where(rows, method=method)
        parts = [[row for row in own if _kind(row) == kind] for kind in (HOME, OTHER, DAMAGED)]
        away = [row for row in own if not row.is_on_source]
        lost = _loss_off_source(own, gain)
        worse = sum(gain(row) < 0 for row in away)
        lines.append(
            (
                method,
                *(seed_mean(part, gain).percent(sign=True) if part else "–" for part in (*parts, away)),
                "–" if lost is None else lost.percent(),
                f"{worse} of {len(away)}",
            )
        )
    columns = ("method", HOME, OTHER, DAMAGED, "away", "lost away", "below zero-shot away")
    title = "Points above zero-shot, mean over sources; lost away: at home less away"
    return ResultTable(title, lines, columns)


def _source_table(source: str, rows: Rows) -> ResultTable:
    domains = distinct(rows, "domain")
    lines = [
        (method, *(seed_mean(where(rows, method=method, domain=domain)).percent() for domain in domains))
        for method in distinct(rows, "method")
    ]
    shots = rows[0].shots
    title = f"{source}: accuracy in %, learned from {shots} shots a class there, on each domain"
    return ResultTable(title, lines, ("method", *domains))


def _kind(row: TransferRow) -> str:
    """A corrupted domain is named with its severity, as fog:3."""
    if row.is_on_source:
        return HOME
    return DAMAGED if row.domain.partition(":")[0] in CORRUPTIONS else OTHER


def _loss_off_source(rows: Rows, gain: Gain) -> Mean | None:
    """Gain at home less gain away, of each source and seed."""
    home = {(row.source, row.seed): gain(row) for row in rows if row.is_on_source}
    away = [row for row in rows if not row.is_on_source]
    return seed_mean(away, lambda row: home[row.source, row.seed] - gain(row)) if away else None


def _gain_over_zero_shot(rows: Rows) -> Gain | None:
    """Accuracy above zero-shot on the same images; None where zero-shot was not measured."""
    known = {(r.source, r.domain, r.seed): r.accuracy for r in where(rows, method=ZERO_SHOT)}
    return (lambda row: row.accuracy - known[row.source, row.domain, row.seed]) if known else None
