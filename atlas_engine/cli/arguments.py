"""Flags that several commands have, each with its words and its default said once. Knows no one command."""

from __future__ import annotations

import argparse
from pathlib import Path

from atlas_engine.cli.output import writable

__all__ = [
    "add_bank",
    "add_folders",
    "add_markdown_file",
    "add_model",
    "add_recipe_file",
    "add_seed",
    "add_skip_unreadable",
    "add_track_pattern",
    "positive",
    "word_list",
]


def add_folders(parser: argparse.ArgumentParser, about: str = "one sub-folder a class in each") -> None:
    """`DIR …`: one folder of labelled images, or several."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help=about)


def add_model(parser: argparse.ArgumentParser) -> None:
    """`--model M`."""
    parser.add_argument(
        "--model", default="bundled", metavar="M", help="bundled (default), ARCH/PRETRAINED, …"
    )


def add_bank(parser: argparse.ArgumentParser, about: str = "a bank file (default: the model's own)") -> None:
    """`--bank FILE`."""
    parser.add_argument("--bank", metavar="FILE", type=Path, help=about)


def add_seed(parser: argparse.ArgumentParser, of: str) -> None:
    """`--seed N`, and what is drawn by it."""
    parser.add_argument("--seed", type=int, default=0, metavar="N", help=f"seed of {of} (default 0)")


def add_skip_unreadable(parser: argparse.ArgumentParser) -> None:
    """`--skip-unreadable`."""
    parser.add_argument("--skip-unreadable", action="store_true", help="leave out images that cannot be read")


def add_track_pattern(parser: argparse.ArgumentParser) -> None:
    """`--track-pattern RE`, as `data.folders.read_folder` takes it."""
    parser.add_argument(
        "--track-pattern", metavar="RE", help="finds in a file's name what its near-duplicates share"
    )


def add_recipe_file(parser: argparse.ArgumentParser) -> None:
    """`-o R`; its folder must exist beforehand, for what is learned is written at the end."""
    parser.add_argument("-o", "--output", metavar="R", type=writable, help="the recipe file to write")


def add_markdown_file(parser: argparse.ArgumentParser) -> None:
    """`--markdown OUT`; its folder must exist beforehand."""
    parser.add_argument(
        "--markdown", type=writable, metavar="OUT", help="also write the tables to OUT as markdown"
    )


def word_list(text: str) -> tuple[str, ...]:
    """Words with commas between them, at least one."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise argparse.ArgumentTypeError("give at least one, or several with commas between them")
    return words


def positive(text: str) -> int:
    """A whole number of at least 1."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"'{text}' must be a whole number of at least 1")
    return int(text)
