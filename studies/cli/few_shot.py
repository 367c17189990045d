"""`atlas eval few-shot`: methods that learn from a few images, compared on folders of classes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atlas_engine.cli.options import command, settings, templates_option, track_pattern_option
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
from studies.few_shot import FewShotStudySettings

if TYPE_CHECKING:
    from studies.methods import Solver

__all__ = ["few_shot"]


@command(
    "atlas eval few-shot photos/pets photos/plants --shots 1,4,16 --json few-shot.json",
    "atlas eval few-shot photos/pets --methods zero-shot,tip,lpp --max-classes 20 --markdown pets.md",
    note=RESUMES,
)
@comparison_options
@track_pattern_option
@templates_option
@settings(FewShotStudySettings)
def few_shot(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    without: tuple[str, ...] | None,
    track_pattern: str | None,
    templates: tuple[str, ...],
    config: FewShotStudySettings,
    files: ReportFiles,
) -> None:
    """Compare few-shot methods on folders.

    Each seed draws classes, shots and test images that no method has seen; all methods get the same.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.few_shot import (
        count_rows,
        few_shot_grid,
        few_shot_tables,
        require_enough_images,
        run_few_shot,
    )
    from studies.methods import STUDY_METHODS, Solver

    named = read_folders(folders, track_pattern=track_pattern)
    require_enough_images(named, config)
    ledger = files.ledger()
    with open_atlas(model, bank=bank) as engine:
        vectors = bank_for(engine, named, without=without, chosen=config.methods, methods=STUDY_METHODS)
        solver = Solver(
            engine, bank=vectors, config=config.budget(), templates=templates, tune_lr=config.tune_lr
        )
        rows = measure_with_progress(
            lambda on_start: run_few_shot(solver, named, settings=config, ledger=ledger, on_start=on_start),
            count_rows(config, folders=len(named)),
        )
        about, data = _about(solver, config), [row.as_dict() for row in rows]
    print_report(files, data, few_shot_tables(rows), about, grid=few_shot_grid(rows))


def _about(solver: Solver, config: FewShotStudySettings) -> str:
    """What the numbers depend on, to stand below the tables."""
    budget = solver.budget
    classes = "all" if config.max_classes is None else f"at most {config.max_classes}"
    images = "all other" if config.max_test is None else f"at most {config.max_test}"
    return (
        f"{describe_model(solver.engine, solver.bank)}; {config.seeds} seed(s), {classes} classes and "
        f"{images} images to measure on; what trains takes {budget.steps} steps of {budget.batch}. ± is the "
        "standard deviation over seeds."
    )
