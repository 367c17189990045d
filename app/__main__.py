"""`python -m app`: open the model, serve the page, print its address. Progress and errors go to stderr."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing

import atlas_engine as atlas
from app import text
from app.hosts import is_public
from app.mcp_tools import wants_mcp
from app.metrics import serve_metrics
from app.page import build, launch
from app.quiet_log import keep_log_quiet
from app.replicas.engine import with_replicas
from app.serving import StopRequest
from app.session import Engines, PageRuns, open_engine
from app.storage import Storage


def main(arguments: list[str] | None = None) -> int:
    """Serve until asked to stop; 1 when there is no model to serve, or no port to serve it on."""
    options = _parser().parse_args(arguments)
    stop_request = StopRequest().install()
    try:
        opened = with_replicas(open_engine(options.model, bank=options.bank, log=_print))
    except atlas.AtlasError as error:
        _print(str(error))
        return 1
    if opened.reason:
        _print(opened.reason)
    with opened.engine, closing(Storage.open()) as storage:
        runs = PageRuns()
        engines = Engines(opened.engine, name=opened.name, offered_only=is_public(options.host))
        page = build(opened, engines, runs=runs)
        try:
            server = launch(
                page,
                opened,
                storage=storage,
                runs=runs,
                host=options.host,
                port=options.port,
                mcp=wants_mcp(options.mcp, log=_print),
            )
        except OSError:  # what Gradio raises where no port is free
            _print(text.page.no_port(options.port))
            return 1
        keep_log_quiet()
        if options.metrics_port is not None:
            serve_metrics(server.metrics, port=options.metrics_port)
            _print(text.server.metrics_address(options.metrics_port))
        if server.health.problems:
            _print(text.server.not_ready(server.health.problems))
        _print(text.page.address(server.address))
        server.wait(stop_request, log=_print)
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
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=os.environ.get("ATLAS_METRICS_PORT") or None,
        help="serve Prometheus metrics on this port of 127.0.0.1 too (ATLAS_METRICS_PORT, else not)",
    )
    return parser


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
