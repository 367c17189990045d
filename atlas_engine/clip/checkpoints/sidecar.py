"""What the files beside a checkpoint say about it: accuracies and the activation function.

Accuracies are in a model card (`README.md`) with lines `pre-trained: 0.59` and `fine-tuned: 0.78`; or in
`zeroshot_accuracies.json` and `ft_accuracies.json` one folder above, with a key per task. The activation is
in the `config.json` of `transformers`, or in the `open_clip_config.json` of open_clip.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

__all__ = ["configured_activation", "reported_accuracies"]

MAX_CHARS = 100_000
_NUMBER = r"\s*:\s*(0?\.\d+|[01]\.0*|1)\s*$"


def reported_accuracies(path: Path | str) -> tuple[float | None, float | None]:
    """Accuracy before and after the fine-tuning of a checkpoint, as fractions; None if not reported."""
    folder = Path(path).parent
    card = _text(folder / "README.md")
    before, after = (_card_line(card, word) for word in ("pre-trained", "fine-tuned"))
    if before is None and after is None:
        names = ("zeroshot_accuracies.json", "ft_accuracies.json")
        before, after = (_json_entry(folder.parent / name, folder.name) for name in names)
    return before, after


def configured_activation(path: Path | str) -> str | None:
    """`quick_gelu`, `gelu` or what else the config beside a checkpoint names; None if there is none."""
    folder = Path(path).parent
    model = _json_object(folder / "open_clip_config.json").get("model_cfg")
    if isinstance(model, dict):
        return "quick_gelu" if model.get("quick_gelu") else "gelu"
    config = _json_object(folder / "config.json")
    tower = config.get("vision_config")
    activation = (tower if isinstance(tower, dict) else config).get("hidden_act")
    return activation if isinstance(activation, str) else None


def _json_object(path: Path) -> dict[str, object]:
    try:
        found = json.loads(_text(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _card_line(card: str, word: str) -> float | None:
    match = re.search(rf"^[\s*-]*{word}{_NUMBER}", card, flags=re.MULTILINE | re.IGNORECASE)
    return float(match[1]) if match else None


def _json_entry(path: Path, key: str) -> float | None:
    try:
        value = json.loads(_text(path))[key]
    except (ValueError, KeyError, TypeError):
        return None
    return float(value) if isinstance(value, float) and 0 <= value <= 1 else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[:MAX_CHARS]
    except OSError:
        return ""
