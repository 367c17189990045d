"""How the server stops, what it says of its health, and what its log and its metrics tell."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from gradio_client import Client, handle_file
from starlette.applications import Starlette
from starlette.testclient import TestClient

import atlas_engine as atlas
from app import text
from app.handlers.models import check_room_for_model, choose_model
from app.health import Health, check_bank, check_decoder, check_disk, health_routes
from app.limits import Limits
from app.metrics import Metrics, serve_metrics
from app.quiet_log import QuietHandler
from app.session import Engines
from app.storage import Storage
from studies.load_test.visitors import visitor_requests
from tests.serving import ROOT, start_server, stop_server

MOST_SECONDS = 20.0
AS_PID_1 = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_be_first_process():
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*AS_PID_1, "true"], capture_output=True, check=False).returncode == 0


def app_process(server):
    """The process of the app itself, which `unshare` has forked."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    found = children.read_text(encoding="ascii").split() if children.exists() else []
    return int(found[0]) if found else server.process.pid


@pytest.mark.slow
def test_a_server_that_is_told_to_stop_ends_runs_with_their_best_and_leaves_no_file(tmp_path):
    """As the first process of a container, where the system allows it: no signal ends that by itself."""
    first = can_be_first_process()
    server = start_server(tmp_path, prefix=AS_PID_1 if first else ())
    try:
        ready = httpx.get(f"{server.address}/readyz", timeout=60)
        assert (ready.status_code, ready.json()["bank"]) == (200, "ok")
        assert httpx.get(f"{server.address}/livez", timeout=60).text == "ok"
        (request,) = visitor_requests(1, tmp_path)
        client = Client(server.address, verbose=False)
        job = client.submit(
            archive=handle_file(request.archive),
            samples=[handle_file(path) for path in request.samples],
            method="paper",
            steps=200,
            api_name="/adapt",
        )
        end = time.monotonic() + 60
        while not any(state[0].get("phase") == "learn" for state in job.outputs()) and time.monotonic() < end:
            time.sleep(0.05)
        assert list((tmp_path / "uploads").rglob("*.zip"))
        with ThreadPoolExecutor(1) as watcher:
            result = watcher.submit(job.result, timeout=MOST_SECONDS)
            start = time.monotonic()
            os.kill(app_process(server), signal.SIGTERM)
            assert server.process.wait(timeout=MOST_SECONDS) == 0
            seconds = time.monotonic() - start
            assert result.result()[0]["stopped"] is True
        assert seconds < MOST_SECONDS
        assert [path for path in (tmp_path / "uploads").rglob("*") if path.is_file()] == []
        assert text.server.STOPPED in server.log
    finally:
        stop_server(server)


# ---- health


@pytest.fixture
def storage(tmp_path):
    opened = Storage.open(tmp_path)
    yield opened
    opened.close()


def test_a_damaged_bank_is_not_ready(tmp_path):
    damaged = tmp_path / "bank.safetensors"
    shutil.copy(next(Path(ROOT, "assets/bank").glob("*.safetensors")), damaged)
    with damaged.open("r+b") as file:
        file.truncate(damaged.stat().st_size - 1000)
    with atlas.open(cache=False) as engine:
        assert check_bank(engine) == ""
        engine.__dict__.pop("bank", None)
        engine._given_bank_path = damaged
        engine.__dict__["bank_path"] = damaged
        assert check_bank(engine) == "cannot be read"


def test_the_parts_are_told_of_and_one_that_fails_is_enough(storage):
    wrong = [""]
    health = Health({"decoder": check_decoder, "disk": lambda: check_disk(storage), "bank": lambda: wrong[0]})
    assert health.refresh() == {}
    client = TestClient(Starlette(routes=health_routes(health)))
    assert client.get("/readyz").json() == {"ready": True, "decoder": "ok", "disk": "ok", "bank": "ok"}
    wrong[0] = "cannot be read"
    health.refresh()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()["bank"]) == (503, "cannot be read")
    assert client.get("/livez").status_code == 200
    wrong[0] = ""
    health.refresh()
    health.draining = True
    assert client.get("/readyz").status_code == 503


def test_a_folder_that_is_gone_is_not_ready(storage):
    shutil.rmtree(storage.scratch)
    assert check_disk(storage) == "cannot be written"


# ---- metrics and log


def test_metrics_are_in_prometheus_words_and_hold_nothing_private():
    metrics = Metrics()
    metrics.count_request("queue/join", 200)
    metrics.count_refusal("queue")
    metrics.count_run(42.0)
    metrics.watch("atlas_sessions", "Sessions.", lambda: 3)
    metrics.watch("atlas_broken", "Broken.", lambda: 1 / 0)
    server = serve_metrics(metrics, port=0)
    try:
        address = f"http://127.0.0.1:{server.server_address[1]}"
        said = httpx.get(f"{address}/metrics", timeout=10)
        assert said.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = said.text.splitlines()
        assert 'atlas_requests_total{route="queue/join",status="200"} 1' in lines
        assert 'atlas_run_seconds_bucket{le="60.0"} 1' in lines
        assert 'atlas_run_seconds_bucket{le="+Inf"} 1' in lines
        assert "atlas_sessions 3" in lines
        assert "atlas_broken NaN" in lines
        assert httpx.get(f"{address}/", timeout=10).status_code == 404
    finally:
        server.shutdown()
        server.server_close()


def test_a_log_line_has_no_words_of_a_visitor_and_there_are_not_too_many(capsys):
    logger = logging.Logger("uvicorn.error")
    logger.addHandler(QuietHandler(lines_a_minute=20))
    try:
        raise ValueError("zanzibar.png")
    except ValueError:
        logger.exception("failed at %s", "zanzibar.png")
    for _ in range(100):
        logger.warning("y" * 5000)
    said = capsys.readouterr().err
    assert "zanzibar" not in said
    assert "ValueError at" in said
    assert len(said.splitlines()) == 20
    assert max(map(len, said.splitlines())) <= 300


def test_what_gradio_prints_of_a_failure_has_no_words_either():
    code = (
        "import traceback\nfrom app.quiet_log import keep_log_quiet\nkeep_log_quiet()\n"
        "try:\n    raise ValueError('zanzibar')\nexcept ValueError:\n    traceback.print_exc()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "ValueError at" in done.stderr
    assert "zanzibar" not in done.stderr
    assert traceback.print_exc.__module__ == "traceback", "only the server's process is changed"


# ---- models from visitors' hands


def test_a_public_host_opens_only_what_it_offers():
    def prepare(name):
        raise AssertionError(f"{name} was fetched")

    engines = Engines(None, name="bundled", prepare=prepare, offered_only=True)
    with pytest.raises(atlas.AtlasError, match="cannot be chosen on this host"):
        list(choose_model(engines, "eve", "ViT-bigG-14/laion2b_s39b_b160k"))


def test_a_model_is_fetched_only_where_there_is_room_for_it():
    with pytest.raises(atlas.AtlasError, match="at most 1 GB"):
        check_room_for_model(2_000_000_000, limits=Limits(model_gigabytes=1))
    with pytest.raises(atlas.AtlasError, match="of disk"):
        check_room_for_model(10**15, limits=Limits(model_gigabytes=10**9))
    check_room_for_model(1000)


def test_too_large_a_model_is_refused_before_anything_is_fetched():
    def prepare(name):
        yield atlas.SetupProgress("model")
        yield atlas.SetupProgress("fetch", nbytes=10**12)
        raise AssertionError(f"{name} was fetched")

    engines = Engines(None, name="bundled", prepare=prepare)
    with pytest.raises(atlas.AtlasError, match="are fetched for a visitor"):
        list(choose_model(engines, "eve", "ViT-L-14/openai"))
