"""`atlas prepare`: a model with its bank on this machine, fetched and built once under one progress bar."""

from __future__ import annotations

import click

from atlas_engine.cli.options import command, json_flag
from atlas_engine.cli.output import emit, emit_json
from atlas_engine.cli.progress import ProgressBar, say_fetching
from atlas_engine.views.tables import table

__all__ = ["prepare"]


@command("atlas prepare ViT-B-32/openai", "atlas prepare hf-hub:owner/name --json")
@click.argument("model", metavar="MODEL", help="ARCH/PRETRAINED, hf-hub:owner/name, ARCH@path or bundled")
@json_flag
def prepare(*, model: str, as_json: bool) -> None:
    """Fetch a model and build its bank, once.

    Its bank is imported from its public checkpoints, where it has some. Says first how much the hub will
    send. What is here already is not fetched again, so a run that was stopped goes on where it was.
    """
    from atlas_engine.library import prepare as prepare_model

    vector = ""
    with ProgressBar(None, "preparing", in_bytes=True) as progress:

        def advance(nbytes: int) -> None:
            progress.advance(nbytes, vector)

        for step in prepare_model(model, cache=False, on_bytes=advance):
            vector = step.vector
            if step.phase == "fetch":
                say_fetching(step.nbytes)
                progress.total = step.nbytes
            advance(0)
    assert step.engine is not None  # the last step has it
    with step.engine as engine:
        path = engine.bank_path
        vectors = () if path is None else engine.bank.tasks
        facts = {"model": model, "bank": None if path is None else str(path), "vectors": list(vectors)}
    if as_json:
        emit_json(facts)
        return
    rows = [("model", model), ("bank", facts["bank"] or "none: it has no public checkpoints")]
    emit(table([*rows, ("vectors", len(vectors))], ("", "ready")))
