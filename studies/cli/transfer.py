"""`atlas eval transfer`: methods that learned on one domain, asked about others."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.command import Command
from atlas_engine.cli.flags import add_settings, settings_from
from studies.cli.eval_options import (
    KEPT,
    add_comparison,
    bank_words,
    donors_of,
    followed,
    ledger_beside,
    named_folders,
    tell,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from atlas_engine.data.folders import ClassFolder
    from studies.methods import Solver
    from studies.transfer import TransferSettings

__all__ = ["TRANSFER"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Sources and other domains, a model and its bank, settings, and what to write."""
    from studies.transfer import TransferSettings

    add_comparison(parser)
    parser.add_argument(
        "--to",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="another domain: asked about after each DIR whose classes it has; may be repeated",
    )
    add_settings(parser, TransferSettings)


def run(args: argparse.Namespace) -> int:
    """Let every method learn on every source; print what it gains there, and what it loses elsewhere."""
    from atlas_engine.engine import open as open_atlas
    from studies.methods import STUDY_METHODS, Solver
    from studies.transfer import (
        TransferSettings,
        require_matching_classes,
        run_transfer,
        transfer_grid,
        transfer_tables,
    )

    settings = settings_from(args, TransferSettings)
    sources, others = _domains(args)
    require_matching_classes(sources, others)
    ledger = ledger_beside(args.json)
    with open_atlas(args.model, bank=args.bank) as engine:
        every = {**sources, **others}
        bank = donors_of(engine, every, without=args.without, chosen=settings.methods, methods=STUDY_METHODS)
        solver = Solver(engine, bank=bank, config=settings.budget())
        rows = followed(
            lambda on_start: run_transfer(
                solver, sources, others, settings=settings, ledger=ledger, on_start=on_start
            ),
            _count(sources, others, settings),
        )
        data, about = [row.as_dict() for row in rows], _about(solver, settings)
        return tell(args, data, transfer_tables(rows), about, grid=transfer_grid(rows))


def _domains(args: argparse.Namespace) -> tuple[dict[str, ClassFolder], dict[str, ClassFolder]]:
    """Sources and others, by names that tell all of them apart."""
    count = len(args.folders)
    whole = argparse.Namespace(**{**vars(args), "folders": [*args.folders, *args.to]})
    read = list(named_folders(whole).items())
    return dict(read[:count]), dict(read[count:])


def _count(
    sources: Mapping[str, ClassFolder], others: Mapping[str, ClassFolder], settings: TransferSettings
) -> int:
    from studies.transfer import matching_folders

    domains = sum(
        1 + len(matching_folders(source, others)) + len(settings.damages) for source in sources.values()
    )
    return domains * settings.seeds * len(settings.methods)


def _about(solver: Solver, settings: TransferSettings) -> str:
    """What the numbers depend on, to stand below the tables."""
    budget = solver.budget
    return (
        f"{bank_words(solver.engine, solver.bank)}; {settings.shots} shots, {settings.seeds} seed(s), at "
        f"most {settings.max_classes} classes and {settings.max_test} images of a domain to measure on; what "
        f"trains takes {budget.steps} steps of {budget.batch}. ± is the standard deviation over seeds."
    )


TRANSFER = Command(
    arguments,
    run,
    examples=(
        "atlas eval transfer pacs/photo --to pacs/sketch --to pacs/cartoon --json transfer.json",
        "atlas eval transfer photos/pets --damages fog:3,jpeg:5 --methods zero-shot,lpp,atlas,auto",
    ),
    about=(
        "Each method learns from the shots of a DIR, and the same model answers for other images of DIR,\n"
        "for those same images damaged, and for every --to that has the classes of DIR.\n"
        f"{KEPT}"
    ),
)
