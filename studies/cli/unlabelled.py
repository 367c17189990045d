"""`atlas eval test-time`: methods that learn from unlabelled images, compared on folders of classes."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import command, parse_words, settings, templates_option
from atlas_engine.errors import ConfigError, unknown_name
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    bank_for,
    comparison_options,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
)
from studies.corruptions import Corruption
from studies.unlabelled import CLEAN, UnlabelledStudySettings

if TYPE_CHECKING:
    from studies.methods import UnlabelledSolver

__all__ = ["test_time"]


def _corruptions(text: str) -> list[Corruption | None]:
    """Corruptions with commas between them; None stands for images as they are."""
    try:
        return [None if word == CLEAN else Corruption.parse(word) for word in parse_words(text)]
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


@command(
    "atlas eval test-time photos/pets photos/plants --corrupt none,fog:3 --json test-time.json",
    "atlas eval test-time photos/pets --methods zero-shot,auto --sizes 20,all --present few",
    note=RESUMES,
)
@comparison_options
@click.option(
    "--corrupt",
    type=_corruptions,
    multiple=True,
    metavar="NAME:SEVERITY,…",
    help=f"damage the images, as fog:3, and {CLEAN} for as they are (default {CLEAN}); may be repeated",
)
@click.option(
    "--shifted",
    type=parse_words,
    metavar="NAME,NAME",
    help="folders that are of a shifted domain as they are: the tables count them among the shifted",
)
@templates_option
@settings(UnlabelledStudySettings)
def test_time(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    without: tuple[str, ...] | None,
    corrupt: tuple[list[Corruption | None], ...],
    shifted: tuple[str, ...] | None,
    templates: tuple[str, ...],
    config: UnlabelledStudySettings,
    files: ReportFiles,
) -> None:
    """Compare methods that learn without labels.

    Each seed draws classes and an order of images; a method sees the first n without labels, and is scored on
    the same. All methods get the same, and larger problems begin with smaller ones.
    """
    from atlas_engine.clip.templates import find_templates
    from atlas_engine.engine import open as open_atlas
    from studies.methods import UNLABELLED_STUDY_METHODS, UnlabelledSolver
    from studies.unlabelled import run_unlabelled
    from studies.unlabelled_report import unlabelled_grid, unlabelled_tables

    corruptions = list(dict.fromkeys(one for several in corrupt for one in several)) or [None]
    named, shifted = read_folders(folders), shifted or ()
    for name in shifted:
        if name not in named:
            raise click.UsageError(f"--shifted: {unknown_name('folder', name, named)}")
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        vectors = bank_for(
            engine, named, without=without, chosen=config.methods, methods=UNLABELLED_STUDY_METHODS
        )
        sentences = find_templates(templates) if templates else None
        solver = UnlabelledSolver(engine, vectors, config.budget(), sentences)
        rows = measure_with_progress(
            lambda on_start: run_unlabelled(
                solver, named, corruptions=corruptions, settings=config, ledger=ledger, on_start=on_start
            ),
            len(named) * len(corruptions) * config.cells,
        )
        data, about = [row.as_dict() for row in rows], _about(solver, config, shifted)
    grid = unlabelled_grid(rows, shifted=shifted)
    print_report(files, data, unlabelled_tables(rows, shifted=shifted), about, grid=grid)


def _about(solver: UnlabelledSolver, config: UnlabelledStudySettings, shifted: Collection[str]) -> str:
    """What the numbers depend on, to stand below the tables."""
    classes = "all" if config.max_classes is None else f"at most {config.max_classes}"
    whole = "every image" if config.max_size is None else f"at most {config.max_size} images"
    named = f" Zero-shot is by prototypes of {config.prototypes} image(s)." if config.prototypes else ""
    domains = f" Shifted as they are: {', '.join(shifted)}." if shifted else ""
    return (
        f"{describe_model(solver.engine, solver.bank)}; {config.seeds} seed(s), {classes} classes; n = all "
        f"is {whole}; few: a third of the classes is among the images, all are asked for. What trains takes "
        f"{solver.budget.steps} steps. ± is the standard deviation over seeds.{named}{domains}"
    )
