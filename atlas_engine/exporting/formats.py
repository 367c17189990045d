"""The table of export formats. A new format is a row here.

write_export(classifier, "otters/", format="onnx", int8=True)
expected_nbytes(classifier, format="html")        # before anything is written
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from atlas_engine.errors import ExportError, unknown_name
from atlas_engine.exporting.classifier import Classifier
from atlas_engine.exporting.clip_folders import write_open_clip, write_transformers
from atlas_engine.exporting.onnx_model import require_onnx, write_onnx
from atlas_engine.exporting.web_page import page_nbytes, require_web_page, write_web_page
from atlas_engine.files import atomic_folder

__all__ = [
    "FORMATS",
    "ExportFormat",
    "Exported",
    "available_formats",
    "check_export",
    "expected_nbytes",
    "write_export",
]

INT8_SHARE = 0.39  # of the bytes in float32: bytes, scales, and the small products that are not rounded


class _WriteFormat(Protocol):
    def __call__(self, classifier: Classifier, folder: Path, *, int8: bool = False) -> None: ...


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """One row: a format, what it is good for, and how it is written."""

    name: str
    help: str
    """What the folder holds, in one line."""
    write: _WriteFormat
    """Fills a folder."""
    require: Callable[[], object]
    """Raises an `ExportError` that says what to install, where something is missing."""
    has_int8: bool = False
    """Whether weights may be stored in eight bits."""
    expected_nbytes: Callable[[int], int] = int
    """Bytes of the folder, from the bytes of the weights."""


@dataclass(frozen=True)
class Exported:
    """What was written: the folder, and its files with their sizes in bytes."""

    folder: Path
    files: tuple[tuple[str, int], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all files."""
        return sum(nbytes for _, nbytes in self.files)


_ROWS = (
    ExportFormat(
        name="onnx",
        help="one file for onnxruntime: an image of any size in, probabilities out",
        write=write_onnx,
        require=require_onnx,
        has_int8=True,
    ),
    ExportFormat(
        name="html",
        help="one web page that answers in the browser: drop, camera, no server",
        write=write_web_page,
        require=require_web_page,
        has_int8=True,
        expected_nbytes=page_nbytes,
    ),
    ExportFormat(
        name="openclip",
        help="the image tower under open_clip's names, with its head",
        write=write_open_clip,
        require=lambda: None,  # what the engine itself needs is enough
    ),
    ExportFormat(
        name="transformers",
        help="a folder for transformers and transformers.js (CLIP ViT)",
        write=write_transformers,
        require=require_onnx,
        expected_nbytes=lambda weights: 47 * weights // 20,  # safetensors, and ONNX in 32 and in 8 bits
    ),
)

FORMATS = MappingProxyType({row.name: row for row in _ROWS})


def available_formats() -> tuple[str, ...]:
    """Names of the formats that this machine has everything for."""
    return tuple(row.name for row in _ROWS if _is_available(row))


def _is_available(row: ExportFormat) -> bool:
    try:
        row.require()
    except ExportError:
        return False
    return True


def check_export(folder: Path | str, *, format: str, int8: bool = False) -> ExportFormat:
    """The row of that name; an `ExportError` where it cannot be written: to this folder, or at all."""
    row, target = _find_format(format, int8=int8), Path(folder)
    if target.is_dir() and any(target.iterdir()):
        raise ExportError(
            f"the folder '{target}' is there already and holds files. Give the name of a new one."
        )
    if target.exists() and not target.is_dir():
        raise ExportError(f"'{target}' is a file. Give the name of a new folder.")
    if not target.absolute().parent.is_dir():
        raise ExportError(
            f"there is no folder '{target.parent}' to write '{target.name}' in. Create it first."
        )
    row.require()
    return row


def expected_nbytes(classifier: Classifier, *, format: str, int8: bool = False) -> int:
    """About how many bytes an export takes, before anything is written."""
    row = _find_format(format, int8=int8)
    return row.expected_nbytes(int(classifier.nbytes * (INT8_SHARE if int8 else 1)))


def write_export(
    classifier: Classifier, folder: Path | str, *, format: str = "onnx", int8: bool = False
) -> Exported:
    """Write the classifier to a new folder, completely or not at all."""
    row, target = check_export(folder, format=format, int8=int8), Path(folder)
    try:
        with atomic_folder(target) as part:
            row.write(classifier, part, int8=int8)
    except OSError as error:
        raise ExportError(f"cannot write '{target}' ({error.strerror}). Choose another folder.") from error
    files = sorted(path for path in target.rglob("*") if path.is_file())
    return Exported(
        target, tuple((path.relative_to(target).as_posix(), path.stat().st_size) for path in files)
    )


def _find_format(name: str, *, int8: bool) -> ExportFormat:
    """The row of that name, or an `ExportError` that suggests the nearest name."""
    if name not in FORMATS:
        raise ExportError(unknown_name("format", name, FORMATS))
    if int8 and not FORMATS[name].has_int8:
        able = " and ".join(row.name for row in _ROWS if row.has_int8)
        raise ExportError(f"the format {name} has no int8. Export as float32, or choose {able}.")
    return FORMATS[name]
