"""The command of the app: `atlas serve`. It reaches `atlas` by an entry point of pyproject.toml."""

from __future__ import annotations

from atlas_engine.cli.main import CommandRow, CommandTable

__all__ = ["COMMANDS"]

COMMANDS: CommandTable = {
    "serve": CommandRow(
        "app.replicas.command:serve", "Serve replicas of a model, for the page and programs."
    ),
}
