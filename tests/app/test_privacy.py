"""What stays of a visit: nothing in the log, no temporary file, and the rest for a while only."""

from __future__ import annotations

import time

import gradio as gr
import httpx
import pytest
from gradio.state_holder import StateHolder
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

from app.events import user_message
from app.limits import LIMITS
from app.page import build
from app.session import OpenedModel, open_engine

SECRETS = ("zanzibar", "quokka", "wombat")


@pytest.fixture(scope="module")
def page(engine):
    return build(OpenedModel(engine))


def test_a_result_is_forgotten_after_a_while_and_uploads_are_deleted(page):
    states = [block for block in page.blocks.values() if isinstance(block, gr.State)]
    saved = [state for state in states if not isinstance(state.value, int)]  # the others count rows
    assert len(saved) == 2
    assert all(0 < state.time_to_live <= LIMITS.keep_seconds for state in saved)
    assert page.delete_cache == (LIMITS.sweep_seconds, LIMITS.keep_seconds)


def test_a_result_is_forgotten_no_later_when_the_page_is_closed(page):
    page.state_session_capacity = LIMITS.sessions
    holder = StateHolder()
    holder.set_blocks(page)
    session = holder["visitor"]
    leaving = [fn.fn for fn in page.fns.values() if any(event == "unload" for _, event in fn.targets)]
    for name in ("visitor", "somebody without a result"):
        for leave in leaving:
            leave(gr.Request(session_hash=name))
    assert LIMITS.keep_seconds == session.STATE_TTL_WHEN_CLOSED


@pytest.mark.parametrize("model", [None, "no such model"])
def test_the_engine_of_the_page_keeps_no_picture_and_no_word_on_the_disk(monkeypatch, tmp_path, draw, model):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    engine = open_engine(model).engine
    engine.predict([draw("zanzibar.png")], SECRETS)
    assert engine.cache is None
    assert not (tmp_path / "cache").exists()


def test_every_event_that_computes_waits_for_the_one_lane(page):
    lanes = {fn.concurrency_id: fn.concurrency_limit for fn in page.fns.values()}
    assert lanes["device"] == 1


def test_the_log_of_a_failure_says_where_but_not_what(caplog):
    try:
        raise ValueError(" ".join(SECRETS))
    except ValueError as error:
        sentence = user_message(error)
    assert "ValueError" in caplog.text
    assert "test_privacy" in caplog.text
    assert not any(secret in caplog.text + sentence for secret in SECRETS)


def test_the_server_writes_no_names_no_words_and_no_addresses(server, draw, archive, tmp_path):
    client = Client(server.address, verbose=False)
    (tmp_path / "quokka.heic").write_bytes(b"\0\0\0\x18ftypheic")
    client.predict(
        images=[handle_file(draw("zanzibar.png")), handle_file(tmp_path / "quokka.heic")],
        classes="wombat, cat",
        api_name="/predict",
    )
    with pytest.raises(AppError):
        client.predict(images=[], classes="wombat", api_name="/predict")
    httpx.get(f"{server.address}/quokka", timeout=60)
    httpx.post(f"{server.address}/gradio_api/call/predict", content=b"{wombat", timeout=60)
    client.predict(archive=handle_file(archive), samples=[], steps=1, api_name="/adapt")
    time.sleep(0.5)  # the log is read by another thread
    said = server.log.lower()
    assert not any(secret in said for secret in SECRETS)
    assert said.count("127.0.0.1") == 1, "only the line that says where the page is"


def test_what_was_unpacked_on_the_way_is_gone(server, archive):
    client = Client(server.address, verbose=False)
    client.predict(archive=handle_file(archive), samples=[], steps=1, api_name="/adapt")
    left = {path.name for path in server.folder.iterdir()} - {"cache", "uploads"}
    assert not [name for name in left if name.startswith("tmp")]


def test_a_visit_leaves_nothing_in_the_cache(server, draw):
    client = Client(server.address, verbose=False)
    client.predict(images=[handle_file(draw("once.png", "teal"))], classes="cat, dog", api_name="/predict")
    assert not [path for path in (server.folder / "cache").rglob("*") if path.is_file()]
