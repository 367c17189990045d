"""Can a result be trusted? Probabilities, "none of these", wrong labels and advice: `atlas eval trust`.

    rows = [row for row, _ in run_trust(engine, folders, settings=TrustSettings(), ledger=Ledger())]
    trust_tables(rows)[0].plain()

Everything is measured with the head of `text-probe` on features of the base model, which needs no training of
coefficients: so a row costs seconds, and many can be drawn. The functions are the product's own.

    calibrate     half of the classes are learned; images of a quarter and of another folder must be rejected
    check         10 % of the labels are moved to another class; by themselves, images of another folder are
                  mixed in and cropped copies are put into another class
    advise        the accuracy that is expected at two and four times the images, and what came true
    continue      as many images again, learned on from the first head, against all of them at once
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from atlas_engine.adapt.advice import fit_power_law
from atlas_engine.adapt.image_check import ImageCheck, check_images
from atlas_engine.adapt.verdict import held_out_folds, labels_per_fold, out_of_fold_logits
from atlas_engine.calibration import Calibration, calibrate
from atlas_engine.class_names import NONE_OF_THESE
from atlas_engine.config import Settings, setting
from atlas_engine.data.folders import ClassFolder
from atlas_engine.engine import Atlas
from atlas_engine.errors import ConfigError
from atlas_engine.heads.base import UNUSED, LabelledFeatures
from atlas_engine.heads.probe import Probe
from atlas_engine.predictions import predictions_from_logits
from atlas_engine.runtime import generator
from atlas_engine.views.comparison import calibration as reliability
from studies.grid import Cell, Ledger, OnStart, StudyRow, drop_repeats, ignore_note, run_grid
from studies.tables import ResultTable, distinct, where
from studies.trust_problems import ImagePool, draw_known_classes, read_pool

__all__ = ["TrustRow", "TrustSettings", "auroc", "run_trust", "trust_tables"]

Found = TypeVar("Found")
FOLDS = 4
WRONG = 0.1  # share of labels that are moved
ODD, COPIES = 4, 4  # images of another folder mixed in, copies put into another class
FAR = 100  # images of another folder to reject
TIMES = (2, 4)  # as many images, that advice looks ahead


@dataclass(frozen=True, kw_only=True)
class TrustSettings(Settings):
    """Which problems are drawn."""

    shots: tuple[int, ...] = setting((4, 8, 16), help="images of a class to learn from", low=2)
    seeds: int = setting(2, help="problems drawn from each folder", low=1)
    max_classes: int = setting(10, help="most classes read of a folder", low=4)
    per_class: int = setting(48, help="most images read of a class", low=8)

    def __post_init__(self) -> None:
        super().__post_init__()
        drop_repeats(self, "shots", in_order=True)


@dataclass(frozen=True)
class TrustRow(StudyRow):
    """What was measured on one problem, by name; shares are fractions of 1."""

    dataset: str
    shots: int
    seed: int
    values: Mapping[str, float]


def run_trust(
    engine: Atlas,
    folders: Mapping[str, ClassFolder],
    *,
    settings: TrustSettings,
    ledger: Ledger,
    on_start: OnStart = ignore_note,
) -> Iterator[tuple[TrustRow, bool]]:
    """Every row, and whether it was measured now. Foreign images come from the folder before."""
    if len(folders) < 2:
        raise ConfigError(
            "one folder was given, but images of another one are to be rejected. Give two or more."
        )
    names = list(folders)
    pools: dict[tuple[str, int], ImagePool] = {}

    def pool(name: str, seed: int) -> ImagePool:
        if (name, seed) not in pools:
            pools[name, seed] = read_pool(
                folders[name],
                engine.backbone,
                engine.head,
                max_classes=settings.max_classes,
                per_class=settings.per_class,
                seed=seed,
            )
        return pools[name, seed]

    def cells_of(dataset: str, folder: ClassFolder, seed: int) -> Iterator[Cell[TrustRow]]:
        other = names[names.index(dataset) - 1]
        files = [item.name for item in folder.items]
        for shots in settings.shots:
            facts = ("trust", engine.fingerprint, files, other, seed, shots)
            yield Cell(
                f"{dataset}, {shots} shots",
                (*facts, settings.max_classes, settings.per_class),
                lambda shots=shots: {  # type: ignore[misc]
                    "shots": shots,
                    "seed": seed,
                    "values": _measure(pool(dataset, seed), pool(other, seed), engine, shots, seed),
                },
                TrustRow,
                {"dataset": dataset},
            )

    return run_grid(folders, cells_of, seeds=settings.seeds, ledger=ledger, on_start=on_start)


def _measure(pool: ImagePool, foreign: ImagePool, engine: Atlas, shots: int, seed: int) -> dict[str, float]:
    return {
        **_measure_calibration(pool, foreign, engine, shots, seed),
        **_measure_check(pool, foreign, shots, seed),
        **_measure_advice(pool, shots, seed),
        **_measure_continuing(pool, shots, seed),
    }


# ---- probabilities and "none of these"


def _measure_calibration(
    pool: ImagePool, foreign: ImagePool, engine: Atlas, shots: int, seed: int
) -> dict[str, float]:
    draw = draw_known_classes(pool, shots=shots, seed=seed)
    far = foreign.activations[_some(len(foreign.labels), FAR, seed=seed)]
    support, (test, unseen, others, negatives) = pool.features(
        draw.support, others=(draw.test, draw.unseen, far, draw.negatives), classes=draw.known
    )
    head, held_out, rows = _cross_fit(support, seed=seed)
    found = calibrate(held_out[rows], support.labels[rows])
    logits = {"known": head.logits(test), "unseen": head.logits(unseen), "far": head.logits(others)}
    right = logits["known"].argmax(dim=1) == draw.test_labels
    values = {
        "accuracy": _share(right),
        "temperature": found.temperature,
        "ECE before": _ece(logits["known"], draw.test_labels, Calibration()),
        "ECE after": _ece(logits["known"], draw.test_labels, found),
        "NLL before": float(F.cross_entropy(logits["known"], draw.test_labels)),
        "NLL after": float(F.cross_entropy(logits["known"] / found.temperature, draw.test_labels)),
        "promised": found.kept_share or 0.0,
        "kept": 1 - _share(found.rejects(logits["known"])),
        "rejected unseen": _share(found.rejects(logits["unseen"])),
        "rejected far": _share(found.rejects(logits["far"])),
    }
    for score, score_of in SCORES.items():
        for kind in ("unseen", "far"):
            values[f"AUROC {score} {kind}"] = auroc(score_of(logits["known"]), score_of(logits[kind]))
    # negatives as one more class
    text = F.pad(engine.head((NONE_OF_THESE,)).cpu(), (0, support.text.shape[1] - pool.text.shape[1]))
    none = len(support.text)
    more = LabelledFeatures(
        torch.cat([support.features, negatives]),
        torch.cat([support.labels, torch.full((len(negatives),), none)]),
        torch.cat([support.text, text]),
        logit_scale=support.logit_scale,
    )
    head, held_out, rows = _cross_fit(more, seed=seed)
    rows = rows & (more.labels != none)
    found = calibrate(held_out[rows], more.labels[rows])

    def rejected(features: Tensor) -> Tensor:
        answers = head.logits(features)
        return found.rejects(answers) | (answers.argmax(dim=1) == none)

    return {
        **values,
        "negatives: kept": 1 - _share(rejected(test)),
        "negatives: rejected unseen": _share(rejected(unseen)),
        "negatives: rejected far": _share(rejected(others)),
    }


SCORES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "max-logit": lambda logits: logits.amax(dim=1),
    "max-softmax": lambda logits: logits.softmax(dim=1).amax(dim=1),
    "energy": lambda logits: logits.logsumexp(dim=1),
}


def auroc(known: Tensor, unknown: Tensor) -> float:
    """The share of pairs of a known and an unknown image in which the known one scores higher.

    >>> auroc(torch.tensor([3.0, 2.0]), torch.tensor([1.0, 2.5]))
    0.75
    """
    higher = (known[:, None] > unknown[None]).double() + 0.5 * (known[:, None] == unknown[None]).double()
    return float(higher.mean())


def _cross_fit(support: LabelledFeatures, *, seed: int) -> tuple[Probe, Tensor, Tensor]:
    """The head of all images, out-of-fold logits (N C), and which rows were held out (N)."""
    folds = held_out_folds(support, folds=FOLDS, seed=seed)
    labels = labels_per_fold(support.labels, folds)
    heads = [Probe.fit_from_text(support.with_labels(row)) for row in labels]
    logits = out_of_fold_logits(folds, lambda run, mask: heads[run].logits(support.features[mask]))
    return heads[-1], logits, folds != UNUSED


def _ece(logits: Tensor, labels: Tensor, used: Calibration) -> float:
    classes = tuple(str(number) for number in range(logits.shape[1]))
    names = tuple(str(row) for row in range(len(logits)))
    predictions = predictions_from_logits(names, classes, logits, calibration=used)
    return reliability([str(label) for label in labels.tolist()], predictions).error


# ---- wrong labels, odd images, copies


def _measure_check(pool: ImagePool, foreign: ImagePool, shots: int, seed: int) -> dict[str, float]:
    """Counts of planted and reported mistakes: wrong labels by themselves, odd images and copies together."""
    draw, classes = generator(seed), len(pool.classes)
    rows = torch.cat([pool.rows_of(label)[:shots] for label in range(classes)])
    count, given = len(rows), pool.labels[rows]
    # labels moved to another class
    moved = torch.randperm(count, generator=draw)[: max(1, round(WRONG * count))]
    wrong = given.clone()
    wrong[moved] = (given[moved] + torch.randint(1, classes, moved.shape, generator=draw)) % classes
    suspects = {one.index for one in _check(pool.taken(rows, wrong), seed).suspects}
    # images of another folder under some class, and cropped copies under the next class
    odd = _some(len(foreign.labels), ODD, seed=seed)
    copied = torch.randperm(count, generator=draw)[:COPIES]
    added = torch.cat([foreign.pixels[odd], _crop(pool.pixels[rows[copied]])])
    labels = torch.cat([torch.randint(0, classes, odd.shape, generator=draw), (given[copied] + 1) % classes])
    found = _check(pool.taken(rows, given, added=added, added_labels=labels), seed)
    copies = {(int(row), count + ODD + place) for place, row in enumerate(copied)}
    return {
        **_hits("wrong labels", suspects, set(moved.tolist())),
        **_hits("odd", {one.index for one in found.odd}, set(range(count, count + ODD))),
        **_hits("copies", {(p.first, p.second) for p in found.duplicates if p.across_classes}, copies),
    }


def _check(pool: ImagePool, seed: int) -> ImageCheck:
    rows = torch.arange(len(pool.labels))
    images, _ = pool.features(rows, classes=range(len(pool.classes)))
    names = [str(row) for row in rows.tolist()]
    return check_images(images, pool.pixels, names=names, classes=pool.classes, seed=seed)


def _hits(kind: str, found: set[Found], planted: set[Found]) -> dict[str, float]:
    counts = {"found": len(found), "planted": len(planted), "hit": len(found & planted)}
    return {f"{kind} {what}": float(count) for what, count in counts.items()}


def _crop(pixels: Tensor) -> Tensor:
    """The images without 4 % of each side, at half the resolution and back, as a re-saved copy looks."""
    side = pixels.shape[-1]
    edge = max(1, round(0.04 * side))
    inner = pixels[..., edge : side - edge, edge : side - edge].float()
    small = F.interpolate(inner, (side // 2, side // 2), mode="area")
    return F.interpolate(small, (side, side), mode="bilinear").round().clamp(0, 255).to(torch.uint8)


# ---- advice and learning on


def _measure_advice(pool: ImagePool, shots: int, seed: int) -> dict[str, float]:
    fewest = min(len(pool.rows_of(label)) for label in range(len(pool.classes)))
    values: dict[str, float] = {}
    times = [factor for factor in TIMES if factor * shots < fewest]
    if not times:
        return values
    accuracy, law = {}, None
    for factor in (1, *times):
        support, test, truth = _whole(pool, factor * shots, skip=times[-1] * shots)
        head, held_out, rows = _cross_fit(support, seed=seed)
        accuracy[factor] = _share(head.logits(test).argmax(dim=1) == truth)
        if law is None:
            right = int((held_out.argmax(dim=1) == support.labels)[rows].sum())
            folds = min(FOLDS, shots)
            law = fit_power_law(support, right=right, count=int(rows.sum()), folds=folds, seed=seed)
    assert law is not None
    now = law.at(shots)
    for factor in times:
        point = law.at(factor * shots)
        values[f"expected x{factor}"] = point.accuracy
        values[f"true x{factor}"] = accuracy[factor]
        values[f"no change x{factor}"] = now.accuracy
        values[f"inside x{factor}"] = float(point.low <= accuracy[factor] <= point.high)
        values[f"gain expected x{factor}"] = point.accuracy - now.accuracy
        values[f"gain true x{factor}"] = accuracy[factor] - accuracy[1]
    return values


def _measure_continuing(pool: ImagePool, shots: int, seed: int) -> dict[str, float]:  # noqa: ARG001
    both, test, truth = _whole(pool, 2 * shots, skip=2 * shots)
    place = torch.arange(len(both.labels)) % (2 * shots)
    first, second = both.without(place >= shots), both.without(place < shots)
    before = Probe.fit_from_text(first)
    heads = {
        "first": before,
        "learned on": before.fit_further(second, images_before=int(first.used.sum())),
        "second alone": Probe.fit_from_text(second),
        "all at once": Probe.fit_from_text(both),
    }
    return {
        f"continue: {name}": _share(head.logits(test).argmax(dim=1) == truth) for name, head in heads.items()
    }


def _whole(pool: ImagePool, shots: int, *, skip: int) -> tuple[LabelledFeatures, Tensor, Tensor]:
    """The first shots of every class, and features and labels of those after the first `skip`."""
    classes = range(len(pool.classes))
    support = torch.cat([pool.rows_of(label)[:shots] for label in classes])
    test = torch.cat([pool.rows_of(label)[skip:] for label in classes])
    images, (features,) = pool.features(support, others=(test,), classes=classes)
    return images, features, pool.labels[test]


def _some(among: int, count: int, *, seed: int) -> Tensor:
    return torch.randperm(among, generator=generator(seed))[:count]


def _share(flags: Tensor) -> float:
    return float(flags.double().mean())


# ---- the report


def trust_tables(rows: Sequence[TrustRow]) -> list[ResultTable]:
    """Probabilities, rejection, scores, planted mistakes, advice and learning on, each by data set."""
    shares = [
        ("Probabilities: ECE in % and NLL of test images, without and with the temperature",
         ("accuracy", "ECE before", "ECE after"), ("temperature", "NLL before", "NLL after")),
        ("None of these: known images kept in %, others rejected in %",
         ("promised", "kept", "rejected unseen", "rejected far", "negatives: kept",
          "negatives: rejected unseen", "negatives: rejected far"), ()),
        ("AUROC in % of known against unseen classes, and against another folder",
         tuple(f"AUROC {score} {kind}" for kind in ("unseen", "far") for score in SCORES), ()),
        ("Learning on: accuracy in %", tuple(f"continue: {name}" for name in
         ("first", "learned on", "second alone", "all at once")), ()),
    ]  # fmt: skip
    tables = [_mean_table(title, rows, percent, plain) for title, percent, plain in shares]
    return [*tables, _hits_table(rows), _advice_table(rows)]


def _groups(rows: Sequence[TrustRow]) -> list[tuple[str, int, list[TrustRow]]]:
    """The rows of each data set and number of shots, and of all data sets together."""
    shots = sorted({row.shots for row in rows})
    groups = [
        (name, k, where(rows, dataset=name, shots=k)) for k in shots for name in distinct(rows, "dataset")
    ]
    return groups + [("all", k, where(rows, shots=k)) for k in shots]


def _mean(rows: Sequence[TrustRow], name: str) -> float | None:
    values = [row.values[name] for row in rows if name in row.values]
    return statistics.fmean(values) if values else None


def _mean_table(
    title: str, rows: Sequence[TrustRow], percent: Sequence[str], plain: Sequence[str]
) -> ResultTable:
    lines = [
        (
            dataset,
            shots,
            *(_percent(_mean(own, name)) for name in percent),
            *(None if (mean := _mean(own, name)) is None else round(mean, 3) for name in plain),
        )
        for dataset, shots, own in _groups(rows)
    ]
    return ResultTable(title, lines, ("data set", "shots", *percent, *plain))


def _hits_table(rows: Sequence[TrustRow]) -> ResultTable:
    """Precision and recall over all planted mistakes."""
    kinds, lines = ("wrong labels", "odd", "copies"), []
    for dataset, shots, own in _groups(rows):
        cells: list[float | None] = []
        for kind in kinds:
            found, planted, hit = (
                sum(row.values[f"{kind} {what}"] for row in own) for what in ("found", "planted", "hit")
            )
            cells += [_percent(hit / found if found else None), _percent(hit / planted if planted else None)]
        lines.append((dataset, shots, *cells))
    columns = [f"{kind}: {what}" for kind in kinds for what in ("precision", "recall")]
    title = "Planted mistakes in %: precision is of what is reported, recall of what was planted"
    return ResultTable(title, lines, ("data set", "shots", *columns))


def _advice_table(rows: Sequence[TrustRow]) -> ResultTable:
    lines = []
    for dataset, shots, own in _groups(rows):
        for factor in TIMES:
            known = [row.values for row in own if f"true x{factor}" in row.values]
            if not known:
                continue

            def off(name: str, factor: int = factor, known: list[Mapping[str, float]] = known) -> float:
                gaps = [abs(one[f"{name} x{factor}"] - one[f"true x{factor}"]) for one in known]
                return round(100 * statistics.fmean(gaps), 1)

            numbers = (
                _percent(statistics.fmean(one[f"{name} x{factor}"] for one in known))
                for name in ("gain expected", "gain true", "inside")
            )
            lines.append((dataset, shots, factor, *numbers, off("expected"), off("no change")))
    columns = ("data set", "shots", "times the images", "gain expected", "gain true", "in the interval %",
               "off by", "off by, no change")  # fmt: skip
    return ResultTable("Advice: points to gain by more images, expected and true", lines, columns)


def _percent(value: float | None) -> float | None:
    return None if value is None else round(100 * value, 1)
