"""The command line: `main` runs `atlas …`. The table of commands is in `atlas_engine.cli.main`."""

from __future__ import annotations

from atlas_engine.cli.main import main

__all__ = ["main"]
