"""What a command is. Knows nothing of any one of them."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass

from atlas_engine.errors import AtlasError

__all__ = ["Command", "Group", "MisuseError", "Row"]


class MisuseError(AtlasError):
    """The command was typed wrongly: exit code 2, where every other AtlasError gives 1."""


@dataclass(frozen=True)
class Command:
    """One thing to do: its flags, what it runs, and two examples that close its help."""

    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    examples: tuple[str, str]
    about: str = ""  # what the help says below the row's summary


@dataclass(frozen=True)
class Row:
    """One line of the table of commands; `target` is `module:NAME` of a `Command`, imported when needed."""

    noun: str
    verb: str  # empty where the noun alone is the command
    summary: str
    target: str

    @property
    def title(self) -> str:
        """The words to type: `atlas cache size`."""
        return " ".join(filter(None, ("atlas", self.noun, self.verb)))

    def load(self) -> Command:
        """The command itself; this imports its module."""
        module, _, name = self.target.partition(":")
        command = getattr(importlib.import_module(module), name)
        if not isinstance(command, Command):
            raise TypeError(f"{self.target} is {type(command).__name__}, not a Command.")
        return command


@dataclass(frozen=True)
class Group:
    """A noun that has verbs: one line about it, and the two examples of its help."""

    summary: str
    examples: tuple[str, str]
