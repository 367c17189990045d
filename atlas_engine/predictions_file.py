"""Predictions as a file for other programs: CSV with a column per class, or JSON.

save_predictions(engine.predict(photos, classes), "answers.csv")
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from atlas_engine.errors import ConfigError
from atlas_engine.files import atomic_write
from atlas_engine.predictions import Predictions

__all__ = ["predictions_as_csv", "save_predictions"]

ENDINGS = (".csv", ".json")


def save_predictions(predictions: Predictions, path: Path | str) -> None:
    """Write predictions to a .csv or a .json file, completely or not at all."""
    target = Path(path)
    if target.suffix.lower() not in ENDINGS:
        raise ConfigError(f"'{target.name}' must end in {' or '.join(ENDINGS)}. Rename it.")
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"there is no folder '{target.parent}' to write '{target.name}' in. Create it first."
        )
    is_csv = target.suffix.lower() == ".csv"
    rows = predictions.as_rows(len(predictions.classes))
    text = (
        predictions_as_csv(predictions) if is_csv else json.dumps(rows, indent=2, ensure_ascii=False) + "\n"
    )
    with atomic_write(target) as part:
        part.write_text(text, encoding="utf-8", newline="")


def predictions_as_csv(predictions: Predictions) -> str:
    """A line per image: its name, the likeliest class, its probability, and that of every class."""
    file = io.StringIO()
    table = csv.writer(file, lineterminator="\n")
    table.writerow(["image", "label", "prob", *predictions.classes])
    best = predictions.probs.amax(dim=1).tolist()
    for name, label, prob, probs in zip(
        predictions.names, predictions.labels, best, predictions.probs.tolist(), strict=True
    ):
        table.writerow([_as_text(name), _as_text(label), f"{prob:.6f}", *(f"{one:.6f}" for one in probs)])
    return file.getvalue()


def _as_text(name: str) -> str:
    """The name, which a spreadsheet must not take for a formula."""
    return f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
