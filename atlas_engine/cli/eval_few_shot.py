"""`atlas eval few-shot`: methods that learn from a few images, compared on folders of classes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.bank import check_output
from atlas_engine.cli.command import Command, MisuseError
from atlas_engine.cli.eval_bank import ROWS_ENDING, _svg, _words, _write
from atlas_engine.cli.flags import add_settings, settings_from
from atlas_engine.cli.output import add_json_file, emit, say, write_json
from atlas_engine.cli.progress import Progress

if TYPE_CHECKING:
    from atlas_engine.atlas import Atlas
    from atlas_engine.bank import TaskVectorBank
    from atlas_engine.data.folders import ClassFolder
    from atlas_engine.study.few_shot import GridRow, GridSettings
    from atlas_engine.study.ledger import Ledger
    from atlas_engine.study.methods import Solver

__all__ = ["FEW_SHOT"]


def arguments(parser: argparse.ArgumentParser) -> None:
    """Folders, a model and its bank, settings, and what to write."""
    from atlas_engine.study.few_shot import GridSettings

    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="one sub-folder a class in each")
    parser.add_argument(
        "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
    )
    parser.add_argument("--bank", type=Path, metavar="FILE", help="a bank file (default: the model's own)")
    parser.add_argument(
        "--without",
        type=_words,
        default=(),
        metavar="NAME,NAME",
        help="vectors of the bank not to use, as those made from a DIR",
    )
    parser.add_argument(
        "--track-pattern", metavar="RE", help="finds in a file's name what its near-duplicates share"
    )
    parser.add_argument(
        "--markdown", type=Path, metavar="OUT", help="also write the tables to OUT as markdown"
    )
    parser.add_argument(
        "--figure", type=_svg, metavar="OUT.svg", help="also draw the differences to zero-shot"
    )
    add_settings(parser, GridSettings)
    add_json_file(parser)


def run(args: argparse.Namespace) -> int:
    """Measure every method on every folder, number of shots and seed; print means, differences and each."""
    from atlas_engine.atlas import open as open_atlas
    from atlas_engine.study.few_shot import GridSettings, require_pictures
    from atlas_engine.study.ledger import Ledger
    from atlas_engine.study.methods import Solver

    settings = settings_from(args, GridSettings)
    for path in filter(None, (args.markdown, args.figure)):
        check_output(path)
    folders = _folders(args)
    require_pictures(folders, settings)
    ledger = Ledger(args.json.with_name(args.json.name + ROWS_ENDING) if args.json else None)
    with open_atlas(args.model, bank=args.bank) as engine:
        bank = _bank(engine, args.without, settings)
        if bank is not None:
            _warn_of_donors(bank, folders)
        solver = Solver(engine, bank=bank, config=settings.budget())
        rows = _measure(solver, folders, settings, ledger)
        return _tell(args, rows, _about(solver, settings))


def _folders(args: argparse.Namespace) -> dict[str, ClassFolder]:
    from atlas_engine.data.folders import read_folder
    from atlas_engine.study.few_shot import dataset_names

    names = dataset_names(args.folders)
    read = [read_folder(path, track_pattern=args.track_pattern) for path in args.folders]
    return dict(zip(names, read, strict=True))


def _bank(engine: Atlas, without: tuple[str, ...], settings: GridSettings) -> TaskVectorBank | None:
    """The vectors to mix, if a method is to mix any."""
    from atlas_engine.study.methods import METHODS

    mixing = [name for name in settings.methods if METHODS[name].mixes]
    if not mixing:
        return None
    if engine.bank_path is None:
        others = ",".join(name for name in METHODS if not METHODS[name].mixes)
        raise MisuseError(
            f"{engine.backbone.name} has no bank of task vectors, and {', '.join(mixing)} mix them. "
            f"Give --bank FILE, or only others: --methods {others}"
        )
    return engine.bank.without(without) if without else engine.bank


def _warn_of_donors(bank: TaskVectorBank, folders: Mapping[str, ClassFolder]) -> None:
    """A vector that was made from a folder has seen its test pictures: say so, for the numbers cannot."""
    for name, folder in folders.items():
        for task, info in zip(bank.tasks, bank.infos, strict=True):
            if folder.name in (task, info.dataset):
                say(f"vector '{task}' was made from {name}, which flatters. --without {task} leaves it out.")


def _measure(
    solver: Solver, folders: Mapping[str, ClassFolder], settings: GridSettings, ledger: Ledger
) -> list[GridRow]:
    """Every row. One from the ledger took no time, so it does not count for the time left."""
    from atlas_engine.study.few_shot import run_grid

    rows = []
    left = len(folders) * settings.seeds * len(settings.shots) * len(settings.methods)
    with Progress(left, "measuring") as progress:
        for one in run_grid(
            solver,
            folders,
            settings=settings,
            ledger=ledger,
            on_start=lambda note: progress.advance(0, note=note),
        ):
            rows.append(one.row)
            if one.fresh:
                progress.advance()
            else:
                left -= 1
                progress.total = left
    return rows


def _tell(args: argparse.Namespace, rows: list[GridRow], about: str) -> int:
    """Write what was asked for, and print the tables."""
    from atlas_engine.study.few_shot_report import grid_sheets, method_grid
    from atlas_engine.views.figures import heat_map

    sheets = grid_sheets(rows)
    if args.json:
        write_json(args.json, [row.as_dict() for row in rows])
    if args.markdown:
        _write(args.markdown, "\n\n".join([*(sheet.markdown() for sheet in sheets), about]) + "\n")
    if args.figure:
        _write(args.figure, heat_map(method_grid(rows)))
    emit("\n\n".join([*(sheet.plain() for sheet in sheets), about]))
    return 0


def _about(solver: Solver, settings: GridSettings) -> str:
    """What the numbers depend on, to stand below the tables."""
    bank, budget = solver.bank, solver.budget
    vectors = "" if bank is None else f", bank {bank.fingerprint[:12]} ({len(bank)} of {bank.storage})"
    classes = "all" if settings.max_classes is None else f"at most {settings.max_classes}"
    images = "all other" if settings.max_test is None else f"at most {settings.max_test}"
    return (
        f"{solver.engine.backbone.name}{vectors}; {settings.seeds} seed(s), {classes} classes and {images} "
        f"images to measure on; what trains takes {budget.steps} steps of {budget.batch}. ± is the standard "
        "deviation over seeds."
    )


FEW_SHOT = Command(
    arguments,
    run,
    examples=(
        "atlas eval few-shot photos/pets photos/plants --shots 1,4,16 --json few-shot.json",
        "atlas eval few-shot photos/pets --methods zero-shot,tip,lpp --max-classes 20 --markdown pets.md",
    ),
    about=(
        "Each seed draws classes, shots and test images that no method has seen; all methods get the same.\n"
        "With --json OUT, finished rows are kept in OUT.rows: given again, a command that was stopped goes\n"
        "on where it was, and one with more methods, seeds or folders measures only the new ones."
    ),
)
