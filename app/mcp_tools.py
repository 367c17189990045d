"""The page's endpoints as MCP tools: whether they are served so, and what Gradio's server lacks for it.

Gradio makes the tools, with the package `mcp`, which is optional. Images come inside of a call, as `data:`
addresses; web addresses are refused as everywhere (`app.edge`). All callers share one session, so the model
is that which the server was started with.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gradio as gr

from app import text
from app.clients import MARK_HEADER

__all__ = [
    "ADDRESS",
    "USER_HEADER",
    "VARIABLE",
    "accept_file_lists",
    "is_mcp",
    "keep_copies_in",
    "run_owner",
    "wants_mcp",
]

ADDRESS = "/gradio_api/mcp/"
VARIABLE = "ATLAS_MCP"
USER_HEADER = "x-gradio-user"  # that Gradio's MCP server sets to `mcp`

Position = list[str | int]  # where in the arguments of a call, or in their schema, something stands


def wants_mcp(flag: bool = False, *, log: Callable[[str], object]) -> bool:
    """Whether the flag or ATLAS_MCP asks for it and it can be had; `log` gets the reason if it cannot."""
    if not flag and os.environ.get(VARIABLE, "").lower() in ("", "0", "false", "no"):
        return False
    if importlib.util.find_spec("mcp") is None:
        log(text.api.MCP_MISSING)
        return False
    return True


def accept_file_lists(server: Any) -> None:  # noqa: ANN401 - Gradio's MCP server
    """Let tools take several files: Gradio 6.31 describes those by a reference that leads nowhere.

    Its schema keeps `$defs` inside of a property, where `#/$defs/FileData` does not find them, and it looks
    for a file at `images/items` of a call, where there are `images/0`, `images/1` …
    """
    original_schema, original_convert = server.get_input_schema, server.convert_strings_to_filedata

    def get_input_schema(tool: str, parameters: dict[str, str] | None = None) -> tuple[Any, list[Position]]:
        schema, positions = original_schema(tool, parameters)
        return without_references(schema), positions

    def convert_strings_to_filedata(arguments: dict[str, Any], positions: Sequence[Position]) -> Any:  # noqa: ANN401
        return original_convert(arguments, [*positions, *list_positions(arguments, positions)])

    server.get_input_schema = get_input_schema
    server.convert_strings_to_filedata = convert_strings_to_filedata


def keep_copies_in(folder: Path) -> None:
    """Let Gradio's MCP server write the images of calls to `folder`, which is swept."""
    import gradio.mcp

    gradio.mcp.DEFAULT_TEMP_DIR = str(folder)


def is_mcp(request: gr.Request) -> bool:
    """Whether an event comes from Gradio's MCP server."""
    return getattr(request, "session_hash", None) is None or request.headers.get(USER_HEADER) == "mcp"


def run_owner(request: gr.Request) -> str | None:
    """Whose run an event begins or stops: the session's, or the MCP client's, since those share a session."""
    marked = request.headers.get(MARK_HEADER) if is_mcp(request) else None
    return f"mcp {marked}" if marked else getattr(request, "session_hash", None)


def without_references(schema: object) -> Any:  # noqa: ANN401 - JSON
    """A schema without definitions and references: what stands beside a reference already says `string`."""
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key not in ("$defs", "$ref")}
        return {key: without_references(value) for key, value in kept.items()}
    return [without_references(one) for one in schema] if isinstance(schema, list) else schema


def list_positions(arguments: dict[str, Any], positions: Sequence[Position]) -> list[Position]:
    """Where the files of a list stand in a call.

    >>> list_positions({"images": ["data:…", "data:…"]}, [["images", "items"]])
    [['images', 0], ['images', 1]]
    """
    lists = [str(position[0]) for position in positions if position[1:] == ["items"]]
    return [[name, place] for name in lists for place in range(len(arguments.get(name) or []))]
