"""Whose result is shown: one that expired is told of, and the worked example is never taken for it."""

from __future__ import annotations

import gradio as gr
import pytest
from gradio.state_holder import SessionState

import atlas_engine as atlas
from app import forget_text, text
from app.engines import Engines
from app.handlers.forget import ForgetResult
from app.limits import LIMITS
from app.model import Opened
from app.page import build
from app.state import SavedResult
from app.tabs.holding import EXAMPLE, NOTHING, OWN, hold, holding
from app.tabs.result import refused

ACTIONS = {  # that act on a result, with what they take besides
    "on_make": (),
    "on_map": ("mixed", "layer", ""),
    "on_turn": (*[0.5] * LIMITS.turned, "", 1.0, "", 1.0),
    "on_strength": (50,),
    "on_slide": (50,),
    "to_take": (),
    "_panels": (),
}
AFTERWARDS = {"_panels", "to_take", "on_model", "on_zip", "stop", "on_stop"}


@pytest.fixture(scope="module")
def page(engine):
    return build(Opened(engine), Engines(engine, name="bundled"))


def named(page):
    return [(one.fn.__name__, one) for one in page.fns.values() if hasattr(one.fn, "__name__")]


def test_the_example_the_visitors_own_and_none_are_told_apart(kept):
    held = hold("the example", name="shows", expired="It has expired.")
    assert held.shown(None, EXAMPLE) == "the example"
    assert held.shown(*holding(kept)) is kept
    assert held.shown(*holding(None)) is None
    assert held.shown(None, NOTHING) is None
    with pytest.raises(atlas.AtlasError, match="expired"):
        held.shown(None, OWN)


def test_what_gradio_hands_out_for_a_state_that_expired_is_nobodys_result(page):
    fresh = SessionState(page)
    states = [one for one in page.blocks.values() if isinstance(one, gr.State)]
    assert sum(one.time_to_live == LIMITS.keep_seconds for one in states) == 3
    assert not any(isinstance(fresh[one._id], SavedResult | ForgetResult) for one in states)


def test_whoever_acts_on_a_result_that_expired_is_told_so(page):
    seen = set()
    for name, event in named(page):
        if name in ACTIONS:
            told = str(event.fn(None, OWN, *ACTIONS[name]))
            assert text.EXPIRED in told or forget_text.EXPIRED in told, name
            seen.add(name)
    assert seen == set(ACTIONS)


def test_a_refusal_leaves_the_note_that_it_is_a_worked_example(page):
    for name, event in named(page):
        if name == "on_adapt" and len(event.inputs) > 10:
            spare = [""] * LIMITS.rows + [None] * LIMITS.rows
            request = gr.Request(session_hash="ann")
            (frame,) = event.fn(request, None, EXAMPLE, None, "auto", 2, 0.1, 0, *spare)
            assert text.few_rows(0) in frame[0]
            assert text.EXAMPLE_NOTE in frame[1]
        if name == "on_forget":
            (frame,) = event.fn(gr.Request(session_hash="ann"), None, EXAMPLE, None, None, 95, 0)
            assert forget_text.EXAMPLE_NOTE[:20] in frame[1]


def test_a_refusal_after_ones_result_expired_shows_neither_it_nor_the_example(page, kept):
    held = hold(kept, name="shows", expired=text.EXPIRED)
    said, headline, _, compared, *_ = refused("No.", held, None, OWN)
    assert "No." in said
    assert text.EXPIRED in headline
    assert kept.sentence not in headline
    assert compared == ""


def test_what_follows_a_run_and_what_ends_one_never_waits_in_the_queue(page):
    """A full queue would refuse it, and leave the page on a former result."""
    found = {name: event for name, event in named(page) if name in AFTERWARDS}
    assert set(found) == AFTERWARDS
    assert [name for name, event in named(page) if name in AFTERWARDS and event.queue] == []
