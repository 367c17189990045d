"""The command line: `atlas NOUN VERB …`. See `frame` for how a command is added."""

from __future__ import annotations

from atlas_engine.cli.frame import main

__all__ = ["main"]
