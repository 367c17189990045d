"""`atlas eval rates`: the learning rates of the baselines that fine-tune."""

from __future__ import annotations

from pathlib import Path

from atlas_engine.cli.options import (
    all_of,
    command,
    folders_argument,
    model_option,
    settings,
    track_pattern_option,
)
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    measure_with_progress,
    print_report,
    read_folders,
    report_options,
)
from studies.rates import RateSettings

__all__ = ["rates"]


@command(
    "atlas eval rates photos/pets photos/plants --json rates.json",
    "atlas eval rates photos/pets --methods lora-half+head --factors 0.3,1,3",
    note=RESUMES,
)
@all_of(folders_argument(), model_option, track_pattern_option)
@settings(RateSettings)
@report_options(None)
def rates(
    *,
    folders: tuple[Path, ...],
    model: str,
    track_pattern: str | None,
    config: RateSettings,
    files: ReportFiles,
) -> None:
    """Search the learning rates of fine-tuning and LoRA.

    Give data sets of the bank, never those that methods are compared on.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.few_shot import require_enough_images
    from studies.rates import count_rate_rows, rate_table, search_rates

    named = read_folders(folders, track_pattern=track_pattern)
    require_enough_images(named, config)
    ledger = files.ledger()
    with open_atlas(model) as engine:
        rows = measure_with_progress(
            lambda on_start: search_rates(engine, named, settings=config, ledger=ledger, on_start=on_start),
            count_rate_rows(config, folders=len(named)),
        )
        about = (
            f"{engine.backbone.name}; {config.seeds} seed(s). Each method's best is by the mean of its rows."
        )
    print_report(files, [row.as_dict() for row in rows], [rate_table(rows)], about)
