"""`atlas eval trust`: probabilities, "none of these", planted mistakes and advice, measured on folders."""

from __future__ import annotations

from pathlib import Path

from atlas_engine.cli.options import command, folders_argument, model_option, settings
from studies.cli.eval_options import (
    RESUMES,
    ReportFiles,
    describe_model,
    measure_with_progress,
    print_report,
    read_folders,
    report_options,
)
from studies.trust import TrustSettings

__all__ = ["trust"]


@command(
    "atlas eval trust photos/pets photos/plants --json trust.json",
    "atlas eval trust photos/pets photos/plants --shots 4 --seeds 1 --markdown trust.md",
    note=RESUMES,
)
@folders_argument()
@model_option
@settings(TrustSettings)
@report_options(None, spreads=True)
def trust(*, folders: tuple[Path, ...], model: str, config: TrustSettings, files: ReportFiles) -> None:
    """Measure whether results can be trusted.

    Calibration, "none of these", planted wrong labels, odd images and copies, advice on more images, and
    learning on, with a head on the base model's features. Each folder lends its images to the next one.
    """
    from atlas_engine.engine import open as open_atlas
    from studies.trust import run_trust, trust_tables

    named = read_folders(folders)
    ledger = files.ledger()
    with open_atlas(model, cache=False) as engine:
        rows = measure_with_progress(
            lambda on_start: run_trust(engine, named, settings=config, ledger=ledger, on_start=on_start),
            len(named) * config.seeds * len(config.shots),
        )
        about = (
            f"{describe_model(engine, None)}; {config.seeds} seed(s), at most {config.max_classes} classes "
            f"of {config.per_class} images; the head of text-probe on features of the base model."
        )
    print_report(files, [row.as_dict() for row in rows], trust_tables(rows), about)
