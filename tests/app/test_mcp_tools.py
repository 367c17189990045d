"""The endpoints as MCP tools: only when asked for, only with the package, and then they answer."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import io
import json
import zipfile
from pathlib import Path

import pytest

from app import text
from app.examples import ASK_EXAMPLES, FEW_SHOT_EXAMPLES
from app.mcp_tools import ADDRESS, wants_mcp
from tests.serving import start_server, stop_server

NAMES = {"adapt", "compare", "models", "predict"}


@pytest.mark.parametrize("said", [None, "", "0", "false", "No"])
def test_without_being_asked_for_it_stays_off(said, monkeypatch):
    monkeypatch.delenv("ATLAS_MCP", raising=False)
    if said is not None:
        monkeypatch.setenv("ATLAS_MCP", said)
    assert not wants_mcp(log=pytest.fail)


@pytest.mark.parametrize("there", [True, False])
def test_where_the_package_is_missing_it_is_told_how_to_get_it(there, monkeypatch):
    monkeypatch.setenv("ATLAS_MCP", "1")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object() if there else None)
    told = []
    assert wants_mcp(log=told.append) is there
    assert told == ([] if there else [text.api.MCP_MISSING])
    assert wants_mcp(True, log=told.append) is there


@pytest.mark.slow
def test_the_tools_answer_by_their_names_and_take_no_web_addresses(tmp_path):
    pytest.importorskip("mcp", reason="the package mcp is optional")
    server = start_server(tmp_path, ATLAS_MCP="1")
    try:
        asyncio.run(_talk(server.address + ADDRESS))
    finally:
        stop_server(server)


async def _talk(address):
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    example = ASK_EXAMPLES[0]
    with open(example.paths[0], "rb") as file:  # noqa: PTH123 - a path as text
        picture = f"data:image/jpeg;base64,{base64.b64encode(file.read()).decode()}"
    async with (
        streamablehttp_client(address) as (reader, writer, _),
        ClientSession(reader, writer) as session,
    ):
        await session.initialize()
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
        assert set(tools) >= NAMES
        assert "left_out" in tools["predict"].description
        assert not any("$ref" in str(tool.inputSchema) for tool in tools.values())
        asked = {"images": [picture, picture], "classes": "cat, rocket"}
        answer = await session.call_tool("predict", asked)
        assert not answer.isError
        assert json.loads(answer.content[0].text)["rows"][1]["label"] == "cat"
        listed = await session.call_tool("models", {})
        assert json.loads(listed.content[0].text)["now"] == "bundled"
        chosen = await session.call_tool("choose_model", {"model": "bundled"})
        assert chosen.isError
        assert text.api.SHARED_SESSION in chosen.content[0].text
        elsewhere = {"images": ["http://127.0.0.1:9/cat.jpg"], "classes": "cat, rocket"}
        refused = await session.call_tool("predict", elsewhere)
        assert refused.isError
        await _stop_a_run(session, address)


async def _stop_a_run(session, address):
    """A caller's stop ends the caller's own run, though all callers share a session."""
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for row in FEW_SHOT_EXAMPLES[0].request.rows[:2]:
            for path in row.paths[:3]:
                archive.write(path, f"{row.name}/{Path(path).name}")
    zipped = f"data:application/zip;base64,{base64.b64encode(packed.getvalue()).decode()}"
    asked = {"archive": zipped, "samples": [], "method": "paper", "steps": 200}
    run = asyncio.create_task(session.call_tool("adapt", asked))
    async with (
        streamablehttp_client(address) as (reader, writer, _),
        ClientSession(reader, writer) as other,
    ):
        await other.initialize()
        for _ in range(200):
            stopped = await other.call_tool("stop", {})
            if json.loads(stopped.content[0].text)["stopped"] or run.done():
                break
            await asyncio.sleep(0.1)
    assert json.loads(stopped.content[0].text) == {"stopped": True}
    ended = await asyncio.wait_for(run, 60)
    assert ended.isError or json.loads(ended.content[0].text)["stopped"]
