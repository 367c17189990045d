"""`atlas cache path|size|clear`. Knows nothing of what is cached."""

from __future__ import annotations

import argparse

from atlas_engine.cli.command import Command
from atlas_engine.cli.output import add_json_flag, emit, emit_json
from atlas_engine.config import cache_folder
from atlas_engine.files import human_nbytes

__all__ = ["CLEAR", "PATH", "SIZE"]


def print_path(args: argparse.Namespace) -> int:
    """Print the folder of the cache, whether it exists or not."""
    folder = str(cache_folder())
    emit_json({"path": folder}) if args.json else emit(folder)
    return 0


def print_size(args: argparse.Namespace) -> int:
    """Print the bytes that the cache takes on disk, without opening it."""
    from atlas_engine.cache import folder_nbytes

    nbytes = folder_nbytes(cache_folder())
    emit_json({"nbytes": nbytes}) if args.json else emit(human_nbytes(nbytes))
    return 0


def clear(args: argparse.Namespace) -> int:
    """Empty the cache, even one that is refused as foreign."""
    from atlas_engine.cache import clear_folder

    freed = clear_folder(cache_folder())
    emit_json({"freed_nbytes": freed}) if args.json else emit(f"{human_nbytes(freed)} freed")
    return 0


PATH = Command(add_json_flag, print_path, ("atlas cache path", "atlas cache path --json"))
SIZE = Command(add_json_flag, print_size, ("atlas cache size", "atlas cache size --json"))
CLEAR = Command(
    add_json_flag,
    clear,
    ("atlas cache clear", "atlas cache clear --json"),
    about="Nothing is lost but time: what the cache held is computed again when it is needed.",
)
