"""What is written beside a checkpoint of how good it is. Knows nothing of the weights.

Two habits are known: a model card (`README.md`) with lines `pre-trained: 0.59` and `fine-tuned: 0.78`; and
`zeroshot_accuracies.json` and `ft_accuracies.json` one folder above, with a key per task.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

__all__ = ["reported_accuracies"]

_NUMBER = r"\s*:\s*(0?\.\d+|[01]\.0*|1)\s*$"


def reported_accuracies(path: Path | str) -> tuple[float | None, float | None]:
    """Accuracy before and after the fine-tuning of a checkpoint, as fractions; None where nobody tells."""
    folder = Path(path).parent
    card = _text(folder / "README.md")
    before, after = (_line(card, word) for word in ("pre-trained", "fine-tuned"))
    if before is None and after is None:
        names = ("zeroshot_accuracies.json", "ft_accuracies.json")
        before, after = (_entry(folder.parent / name, folder.name) for name in names)
    return before, after


def _line(card: str, word: str) -> float | None:
    found = re.search(rf"^[\s*-]*{word}{_NUMBER}", card, flags=re.MULTILINE | re.IGNORECASE)
    return float(found[1]) if found else None


def _entry(path: Path, key: str) -> float | None:
    try:
        value = json.loads(_text(path))[key]
    except (ValueError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, float) and 0 <= value <= 1 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:100_000]
    except OSError:
        return ""
