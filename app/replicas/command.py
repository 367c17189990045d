"""`atlas serve`: replicas of the model for pages and programs, until it is stopped."""

from __future__ import annotations

import signal
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

import atlas_engine as atlas
from app import text
from app.replicas.results import VARIABLE, default_results
from app.replicas.trust import check_private, use_token
from atlas_engine.cli.options import bank_option, command, model_option, positive
from atlas_engine.cli.output import emit, say

__all__ = ["serve"]


@command("atlas serve --replicas 2", "ATLAS_BACKEND=ray python -m app")
@click.option("--replicas", type=positive, default=1, metavar="N", help="of each: predict, try and adapt")
@click.option("--port", type=positive, default=8000, metavar="N", help="of their one address")
@click.option("--host", default="127.0.0.1", metavar="IP", help="a private address to listen on")
@model_option
@bank_option()
@click.option("--device", metavar="NAME", help="cpu or cuda (default: the best there is)")
@click.option("--threads", type=positive, default=1, metavar="N", help="of each replica on a CPU")
@click.option("--gpus", type=float, default=0.0, metavar="SHARE", help="of a GPU, for each replica")
@click.option("--queue", type=positive, default=32, metavar="N", help="requests that may wait for each kind")
@click.option(
    "--results", metavar="WHERE", help=f"folder or bucket of recipes ({VARIABLE}, else in the cache)"
)
@click.option("--cluster", metavar="ADDRESS", help="a Ray that runs already (default: one of its own)")
def serve(
    *,
    host: str,
    results: str | None,
    replicas: int,
    model: str,
    bank: Path | None,
    **given: Any,  # noqa: ANN401 - the plan's
) -> None:
    """Serve replicas of a model on Ray, at an address of a private network.

    The page is a client of them: start it with ATLAS_BACKEND=ray. Whoever asks needs the token, which is made
    at the first start (RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token). Never let the internet reach the address
    or Ray's own ports.
    """
    check_private(host)
    if find_spec("ray") is None:
        raise atlas.AtlasError(text.replicas.NO_RAY)
    use_token()
    from app.replicas.application import Plan, serving

    stop = threading.Event()
    plan = Plan(
        replicas=replicas,
        host=host,
        model=model,
        bank=None if bank is None else str(bank.resolve()),
        results=results or default_results(),
        **given,
    )
    with serving(plan) as address:
        for which in (signal.SIGTERM, signal.SIGINT):  # after Ray, which has handlers of its own
            signal.signal(which, lambda *_: stop.set())
        say(text.replicas.serving(address, replicas))
        emit(f"ATLAS_BACKEND=ray://{plan.host}:{plan.port}")
        while not stop.wait(0.5):
            pass
        say(text.replicas.STOPPING)
