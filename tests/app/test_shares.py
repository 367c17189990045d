"""Shared classifiers: kept for some days within a quota, under secret names; and the card of the page."""

from __future__ import annotations

import os

import gradio as gr
import httpx
import pytest

import atlas_engine as atlas
from app import text
from app.front import CARD, with_social_tags
from app.page import build
from app.session import OpenedModel
from app.shares import VARIABLE, Shares
from tests.app.page_events import by_name, event_named, values_for

DAY = 86400


@pytest.fixture
def clock():
    return [1_000_000_000.0]


@pytest.fixture
def shares(tmp_path, clock):
    return Shares(tmp_path / "shared", keep_days=2, max_files=3, clock=lambda: clock[0])


def age(shares, clock):
    """Give every file the time of the clock."""
    for file in shares.folder.iterdir():
        os.utime(file, (clock[0], clock[0]))


def test_a_recipe_comes_back_by_its_name_and_by_no_other(shares, saved, clock):
    name = shares.keep(saved.recipe)
    age(shares, clock)
    assert shares.load(name) == saved.recipe
    assert (shares.folder.stat().st_mode & 0o777) == 0o700
    for strange in ("", "x" * 16, "../" + name, name + "a", "..%2f", "a/b"):
        with pytest.raises(atlas.AtlasError, match="leads nowhere"):
            shares.load(strange)


def test_its_days_are_counted_and_a_full_folder_takes_no_more(shares, saved, clock):
    names = [shares.keep(saved.recipe) for _ in range(2)]
    age(shares, clock)
    clock[0] += 1.5 * DAY
    last = shares.keep(saved.recipe)
    os.utime(shares.folder / f"{last}.atlas.safetensors", (clock[0], clock[0]))
    with pytest.raises(atlas.AtlasError, match="room"):
        shares.keep(saved.recipe)
    assert len(list(shares.folder.iterdir())) == 3, "what was refused is not half there"
    clock[0] += DAY
    with pytest.raises(atlas.AtlasError, match="leads nowhere"):
        shares.load(names[0])
    assert shares.load(last) == saved.recipe
    shares.keep(saved.recipe)


def test_a_quota_of_bytes_holds_too(tmp_path, saved):
    with pytest.raises(atlas.AtlasError, match="room"):
        Shares(tmp_path, max_nbytes=10).keep(saved.recipe)
    assert list(tmp_path.iterdir()) == []


def test_a_link_opens_the_page_on_the_classifier_ready_to_try(small, saved, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    page = build(OpenedModel(small, own_bank=False))
    share = event_named(page, "on_share")
    link = share.fn(values_for(share, {"the visitor's own result": saved, "shows": "own"}))
    name = link.partition("?shared=")[2].partition("'")[0]
    opened = event_named(page, "on_shared").fn
    shown = by_name(opened(_Visit({"shared": name})))
    assert shown["classes"] == ", ".join(saved.recipe.classes)
    assert text.share.SHARED in shown["run"]
    assert shown["tabs"]["selected"] == "try"
    gone = by_name(opened(_Visit({"shared": "x" * 16})))
    assert "leads nowhere" in gone["alert"]
    assert opened(_Visit({})) == gr.skip()


class _Visit:
    """As much of a request as the page reads."""

    def __init__(self, query):
        self.query_params = query


# ---- what a link to the page shows


def test_the_page_is_compressed_and_has_tags_of_its_own(server):
    answer = httpx.get(server.address, headers={"accept-encoding": "gzip"}, timeout=60)
    assert answer.headers["content-encoding"] == "gzip"
    assert 5 * answer.num_bytes_downloaded < len(answer.content)
    page = answer.text
    assert f'<meta property="og:title" content="{text.page.TITLE}">' in page
    assert 'content="Gradio"' not in page
    assert "Click to try out the app" not in page
    if CARD.is_file():
        card = httpx.get(f"{server.address}/card.png", timeout=60)
        assert card.content == CARD.read_bytes()
        assert f'content="{server.address}/card.png"' in page


def test_an_address_cannot_break_out_of_the_tags():
    page = with_social_tags("<html><head></head></html>", address='http://x"><script>')
    assert "<script>" not in page
