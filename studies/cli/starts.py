"""`atlas eval starts`: a head on a tower that already stands at a mix of task vectors."""

from __future__ import annotations

from pathlib import Path

from atlas_engine.cli.options import (
    all_of,
    bank_option,
    command,
    folders_argument,
    model_option,
    settings,
    track_pattern_option,
)
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
    report_options,
)
from studies.starts import StartSettings

__all__ = ["starts"]


@command(
    "atlas eval starts photos/pets photos/plants --json starts.json",
    "atlas eval starts photos/pets --shots 1,4 --seeds 3 --markdown starts.md",
    note=RESUMES,
)
@all_of(folders_argument(), model_option, bank_option(), track_pattern_option)
@settings(StartSettings)
@report_options(None)
def starts(
    *,
    folders: tuple[Path, ...],
    model: str,
    bank: Path | None,
    track_pattern: str | None,
    config: StartSettings,
    files: ReportFiles,
) -> None:
    """Whether a mix helps before anything is learned.

    A head is fitted at several fixed mixes, with the bank's vectors and with random ones of the same norms.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.starts import count_starts, run_starts, start_tables

    named, ledger = read_folders(folders, track_pattern=track_pattern), files.ledger()
    with open_atlas(model, bank=bank) as engine:
        rows = measure_with_progress(
            lambda on_start: run_starts(
                engine, engine.bank, named, settings=config, ledger=ledger, on_start=on_start
            ),
            count_starts(config, folders=len(named)),
        )
        about = (
            f"{describe_model(engine, engine.bank)}; {config.seeds} seed(s), a folder's own vector left out."
        )
    print_report(files, [row.as_dict() for row in rows], start_tables(rows), about)
