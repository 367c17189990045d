"""`atlas eval transfer`: methods that learned on one domain, asked about others."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from atlas_engine.cli.options import PATH, command, settings, templates_option
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
from studies.transfer import TransferSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from atlas_engine.data.folders import ClassFolder
    from studies.methods import Solver

__all__ = ["transfer"]


@command(
    "atlas eval transfer pacs/photo --to pacs/sketch --to pacs/cartoon --json transfer.json",
    "atlas eval transfer photos/pets --damages fog:3,jpeg:5 --methods zero-shot,lpp,atlas,auto",
    note=RESUMES,
)
@comparison_options
@click.option(
    "--to",
    type=PATH,
    multiple=True,
    metavar="DIR",
    help="another domain: asked about after each DIR whose classes it has; may be repeated",
)
@templates_option
@settings(TransferSettings)
def transfer(
    *,
    folders: tuple[Path, ...],
    to: tuple[Path, ...],
    model: str,
    bank: Path | None,
    without: tuple[str, ...] | None,
    templates: tuple[str, ...],
    config: TransferSettings,
    files: ReportFiles,
) -> None:
    """Learn on one domain, ask about others.

    Each method learns from the shots of a DIR, and the same model answers for other images of DIR, for those
    same images damaged, and for every --to that has the classes of DIR.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.methods import STUDY_METHODS, Solver
    from studies.transfer import require_matching_classes, run_transfer, transfer_grid, transfer_tables

    every = read_folders([*folders, *to])  # by names that tell all of them apart
    sources = dict(list(every.items())[: len(folders)])
    others = {name: folder for name, folder in every.items() if name not in sources}
    require_matching_classes(sources, others)
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        vectors = bank_for(engine, every, without=without, chosen=config.methods, methods=STUDY_METHODS)
        solver = Solver(engine, bank=vectors, config=config.budget(), templates=templates)
        rows = measure_with_progress(
            lambda on_start: run_transfer(
                solver, sources, others, settings=config, ledger=ledger, on_start=on_start
            ),
            _count(sources, others, config),
        )
        data, about = [row.as_dict() for row in rows], _about(solver, config)
    print_report(files, data, transfer_tables(rows), about, grid=transfer_grid(rows))


def _count(
    sources: Mapping[str, ClassFolder], others: Mapping[str, ClassFolder], config: TransferSettings
) -> int:
    """How many rows will be measured: each source at home, away and damaged, by every seed and method."""
    from studies.transfer import matching_folders

    domains = sum(
        1 + len(matching_folders(source, others)) + len(config.damages) for source in sources.values()
    )
    return domains * config.seeds * len(config.methods)


def _about(solver: Solver, config: TransferSettings) -> str:
    """What the numbers depend on, to stand below the tables."""
    budget = solver.budget
    return (
        f"{describe_model(solver.engine, solver.bank)}; {config.shots} shots, {config.seeds} seed(s), at "
        f"most {config.max_classes} classes and {config.max_test} images of a domain to measure on; what "
        f"trains takes {budget.steps} steps of {budget.batch}. ± is the standard deviation over seeds."
    )
