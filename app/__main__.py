"""`python -m app`: open the model, serve the page, print its address. Progress and errors go to stderr."""

from __future__ import annotations

import argparse
import sys

import atlas_engine as atlas
from app import text
from app.mcp_tools import wants_mcp
from app.page import build, launch
from app.session import open_engine


def main(arguments: list[str] | None = None) -> int:
    """Serve until interrupted; 1 when there is no model to serve, or no port to serve it on."""
    options = _parser().parse_args(arguments)
    try:
        opened = open_engine(options.model, bank=options.bank, log=_print)
    except atlas.AtlasError as error:
        _print(str(error))
        return 1
    if opened.reason:
        _print(opened.reason)
    with opened.engine:
        page = build(opened)
        try:
            mcp = wants_mcp(options.mcp, log=_print)
            address = launch(page, host=options.host, port=options.port, mcp=mcp)
        except OSError:  # what Gradio raises where no port is free
            _print(text.page.no_port(options.port))
            return 1
        _print(text.page.address(address))
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


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
