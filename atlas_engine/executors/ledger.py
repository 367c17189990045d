"""What was done before, by a key of its content: a run that was stopped continues where it was.

    ledger = Ledger("few-shot.json.rows")
    row, fresh = ledger.once(key_of("few-shot", model, data_digest, settings), measure)

A key is a hash of all that decides an outcome: data, settings, model. Each line of the file also names the
version of the program that wrote it, and those of another version do not count. Between two releases the code
is no fact: after a change of a method, remove its lines from the file. Tensors that belong to a row lie in a
folder beside the file, a safetensors file each.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from atlas_engine.config import software_version
from atlas_engine.errors import EvalError
from atlas_engine.files import atomic_write

__all__ = ["Ledger", "key_of"]


class Ledger:
    """Rows by key, in memory and, where a path is given, as lines of JSON in a file.

    A line is written as soon as its row is known. A last line that a kill cut off is dropped.
    """

    def __init__(self, path: Path | str | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._rows: dict[str, dict[str, Any]] = {}
        self._tensors: dict[str, bytes] = {}  # of rows that no file keeps
        if self.path is not None and self.path.exists():
            self._rows = _read_rows(self.path)

    def get(self, key: str) -> dict[str, Any] | None:
        """The row under this key; None where there is none."""
        return self._rows.get(key)

    def put(self, key: str, row: Mapping[str, Any], tensors: bytes = b"") -> dict[str, Any]:
        """Keep a row, and the tensors that belong to it. Returns the row as `get` will."""
        line = json.dumps({"key": key, "code": software_version(), **row}, allow_nan=False)
        if self.path is None:
            self._tensors[key] = tensors
        else:
            try:
                if tensors:  # before the line that promises them
                    self._tensors_file(key).parent.mkdir(exist_ok=True)
                    with atomic_write(self._tensors_file(key)) as part:
                        part.write_bytes(tensors)
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
            except OSError as error:
                raise EvalError(f"cannot write {self.path} ({error.strerror}). Make room for it.") from error
        self._rows[key] = dict(row)
        return self._rows[key]

    def once(self, key: str, measure: Callable[[], Mapping[str, Any]]) -> tuple[dict[str, Any], bool]:
        """The row under this key, measured now if there is none; and whether it was measured now."""
        known = self.get(key)
        return (self.put(key, measure()), True) if known is None else (known, False)

    def tensors(self, key: str) -> bytes:
        """The tensors that were put with a row, as the bytes of a safetensors file; b"" without any."""
        if self.path is None:
            return self._tensors.get(key, b"")
        file = self._tensors_file(key)
        return file.read_bytes() if file.is_file() else b""

    def known(self) -> Mapping[str, Mapping[str, Any]]:
        """All rows by their keys."""
        return dict(self._rows)

    def remove(self) -> None:
        """Delete the file and what belongs to it, once all that it holds is safe elsewhere."""
        self._rows, self._tensors = {}, {}
        if self.path is not None:
            self.path.unlink(missing_ok=True)
            shutil.rmtree(self._tensors_folder(), ignore_errors=True)

    def _tensors_folder(self) -> Path:
        assert self.path is not None
        return self.path.with_name(f"{self.path.name}.tensors")

    def _tensors_file(self, key: str) -> Path:
        return self._tensors_folder() / f"{key}.safetensors"

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"Ledger({len(self)} rows{'' if self.path is None else f' in {self.path.name}'})"


def key_of(*facts: object) -> str:
    """A hash of facts that are plain JSON types; 24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:24]


def _read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by key; whatever follows the last newline is cut off the file."""
    try:
        text = path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            with path.open("r+b") as file:
                file.truncate(len(whole))
    except OSError as error:
        raise EvalError(f"cannot read {path} ({error.strerror}). Move it away to start anew.") from error
    rows: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(whole.decode(errors="replace").splitlines(), start=1):
        try:
            row = dict(json.loads(line))
            key, code = row.pop("key"), row.pop("code", None)
        except (ValueError, KeyError, TypeError):
            raise EvalError(
                f"line {number} of {path} is none of ours. Remove that line, or move the file away."
            ) from None
        if code in (None, software_version()):  # lines of before say no version
            rows[key] = row
    return rows
