"""The page's endpoints as MCP tools: whether they are served so, and what Gradio's server lacks for it.

Gradio makes the tools, with the package `mcp`, which is optional. Images come inside of a call, as `data:`
addresses; web addresses are refused as everywhere (`app.edge`). All callers share one session, so the model
is that which the server was started with.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from typing import Any

from app import text

__all__ = ["ADDRESS", "VARIABLE", "accept_file_lists", "wants_mcp"]

ADDRESS = "/gradio_api/mcp/"
VARIABLE = "ATLAS_MCP"

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
