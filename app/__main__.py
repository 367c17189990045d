"""`python -m app`: open the model, serve the page, say where. Progress and errors go to stderr."""

from __future__ import annotations

import argparse
import sys

import atlas_engine as atlas
from app import text
from app.model import open_engine
from app.page import build, launch
from app.tools import wants_mcp


def main(arguments: list[str] | None = None) -> int:
    """Serve until interrupted; 1 when there is no model to serve, or no port to serve it on."""
    wanted = _parser().parse_args(arguments)
    try:
        opened = open_engine(wanted.model, bank=wanted.bank, tell=_say)
    except atlas.AtlasError as error:
        _say(str(error))
        return 1
    if opened.reason:
        _say(opened.reason)
    with opened.engine:
        page = build(opened)
        try:
            mcp = wants_mcp(wanted.mcp, tell=_say)
            address = launch(page, host=wanted.host, port=wanted.port, mcp=mcp)
        except OSError:  # the only word Gradio has for it
            _say(text.no_port(wanted.port))
            return 1
        _say(text.address(address))
        page.block_thread()
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m app",
        description="Serve the page.",
        epilog="examples:\n  python -m app\n  python -m app --host 0.0.0.0 --port 7860",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--host", help="address to listen on (GRADIO_SERVER_NAME, else 127.0.0.1)")
    parser.add_argument(
        "--port", type=int, help="port (else the first free one from GRADIO_SERVER_PORT or 7860)"
    )
    parser.add_argument("--model", help="model to serve (ATLAS_MODEL, else the bundled one)")
    parser.add_argument("--bank", help="bank of task vectors (ATLAS_BANK, else the model's own)")
    parser.add_argument("--mcp", action="store_true", help="serve the endpoints as MCP tools too (ATLAS_MCP)")
    return parser


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
