"""Whose result is shown: one that expired is told of, and the worked example is never taken for it."""

from __future__ import annotations

import gradio as gr
import pytest
from gradio.state_holder import SessionState

import atlas_engine as atlas
from app import text
from app.events import UNPACK
from app.handlers.few_shot import SavedResult
from app.handlers.forget import ForgetResult
from app.limits import LIMITS
from app.page import build
from app.session import Engines, OpenedModel
from app.tabs.result_state import EXAMPLE, NONE, OWN, ResultState
from tests.app.page_events import by_name, event_named, events_of, shows, values_for

ACTIONS = {  # events that act on a result, with what they are given besides
    "on_make_weights": {},
    "on_map": {},
    "on_scale": {},
    "on_strength": {"forget-strength": 50},
    "on_strength_images": {"forget-strength": 50},
    "on_forget_result": {},
    "on_result": {},
    "on_inside": {},
    "on_share": {},
    "on_anyway": {},
}
AFTERWARDS = {"on_result", "on_forget_result", "on_model", "stop", "on_stop", "on_check"}
NO_CLASSES = {f"Class {place}": "" for place in range(1, LIMITS.rows + 1)}
ANN = gr.Request(session_hash="ann")


@pytest.fixture(scope="module")
def page(engine):
    return build(OpenedModel(engine), Engines(engine, name="bundled"))


def test_the_example_the_visitors_own_and_none_are_told_apart(saved):
    state = ResultState.create("the example", name="shows", expired="It has expired.")
    assert state.read({state.own: None, state.shows: EXAMPLE}) == "the example"
    assert state.read(state.store(saved)) is saved
    assert state.read(state.store(None)) is None
    assert state.read({state.own: None, state.shows: NONE}) is None
    with pytest.raises(atlas.AtlasError, match="expired"):
        state.read({state.own: None, state.shows: OWN})


def test_what_gradio_hands_out_for_a_state_that_expired_is_nobodys_result(page):
    fresh = SessionState(page)
    states = [one for one in page.blocks.values() if isinstance(one, gr.State)]
    assert sum(one.time_to_live == LIMITS.keep_seconds for one in states) == 2
    assert not any(isinstance(fresh[one._id], SavedResult | ForgetResult) for one in states)


def test_whoever_acts_on_a_result_that_expired_is_told_so(page):
    seen = set()
    for name, event in events_of(page):
        if name in ACTIONS:
            answer = event.fn(values_for(event, {**ACTIONS[name], shows(event): OWN}))
            told = answer if isinstance(answer, str) else str(list(answer.values()))
            assert text.result.EXPIRED in told or text.forget.EXPIRED in told, name
            seen.add(name)
    assert seen == set(ACTIONS)


def test_a_refusal_leaves_the_note_that_it_is_a_worked_example(page):
    event = event_named(page, "on_adapt", among="samples")
    (updates,) = event.fn(ANN, values_for(event, NO_CLASSES))
    shown = by_name(updates)
    assert text.teach.few_rows(0) in shown["teach-alert"]
    assert text.result.EXAMPLE_NOTE in shown["run"]
    event = event_named(page, "on_forget")
    (updates,) = event.fn(ANN, values_for(event))
    assert text.forget.EXAMPLE_NOTE[:20] in by_name(updates)["forget-run"]


def test_a_refusal_after_ones_result_expired_shows_neither_it_nor_the_example(page):
    event = event_named(page, "on_adapt", among="samples")
    (updates,) = event.fn(ANN, values_for(event, {**NO_CLASSES, "shows": OWN}))
    shown = by_name(updates)
    assert text.teach.few_rows(0) in shown["teach-alert"]
    assert text.result.EXPIRED in shown["run"]
    assert "at-verdict" not in shown["run"]
    assert shown["compare"] == ""


def test_what_follows_a_run_and_what_ends_one_never_waits_in_the_queue(page):
    """A full queue would refuse it, and leave the page on a former result."""
    found = {name: event for name, event in events_of(page) if name in AFTERWARDS}
    assert set(found) == AFTERWARDS
    assert [name for name, event in events_of(page) if name in AFTERWARDS and event.queue] == []


def test_zips_are_unpacked_one_at_a_time(page):
    lanes = {(event.queue, event.concurrency_id) for name, event in events_of(page) if name == "on_zip"}
    assert lanes == {(True, UNPACK["concurrency_id"])}
    assert UNPACK["concurrency_limit"] == 1
