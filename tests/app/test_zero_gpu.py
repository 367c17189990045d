"""The page's events as ZeroGPU runs them: arguments and results are pickled on their way to a fork and back.

`spaces` itself forks only where a GPU can be borrowed. What stands in for it here pickles as it does.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import pickle

import gradio as gr
import pytest
from gradio.helpers import special_args
from starlette.requests import Request

from app import text
from app.events import DEVICE
from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.takeaway import save_recipe
from app.limits import LIMITS
from app.page import build
from app.prepared_examples import load_few_shot, load_forget
from app.session import Engines, OpenedModel
from app.space import run_on_gpu
from app.tabs.result_state import OWN
from tests.app import page_events

VISITOR = "a-visitors-session"
STATES = 3  # of a run; what it gives at its end is pickled in test_space


def pickling(handler, *, duration):
    """As `spaces.GPU`, with a fork that is this very process."""

    def sent(value):
        return pickle.loads(pickle.dumps(value))

    def stream(*values):
        assert duration(*values) > 0
        for value in handler(*sent(values)):
            yield sent(value)

    def call(*values):
        assert duration(*values) > 0
        return sent(handler(*sent(values)))

    return functools.wraps(handler)(stream if inspect.isgeneratorfunction(handler) else call)


@pytest.fixture(scope="module")
def page(engine):
    engines = Engines(engine, name="bundled")
    built = build(OpenedModel(engine), engines, fixed=True)
    run_on_gpu(built, engines, engine, gpu=pickling)
    return built


@pytest.fixture(scope="module")
def asking():
    """As Gradio hands it over: around a request of the web framework, which nobody can pickle."""
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "headers": [(b"cookie", b"a=b")],
        "query_string": b"",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "scheme": "http",
        "app": lambda: None,
    }
    return gr.Request(Request(scope), session_hash=VISITOR)


@pytest.fixture(scope="module")
def given(squares, archive, engine, tmp_path_factory):
    """What each event of the device's lane is given, by its handler's name: by component, or in order.

    Of two handlers with one name each is given what it has inputs for.
    """
    saved = load_few_shot(engine, FEW_SHOT_EXAMPLES[0])
    red, blue = (
        [(str(path), None) for path in sorted((squares / "teach" / name).iterdir())]
        for name in ("red", "blue")
    )
    mixed = [(path, "red") for path, _ in red] + [(path, "blue") for path, _ in blue]
    samples = [path for path, _ in red[:2]]
    recipe = save_recipe(saved.recipe, tmp_path_factory.mktemp("recipe"))
    packed = str(archive)
    own, no_rows = (
        {page_events.OWN: saved, "shows": OWN},
        {f"Class {n}": "" for n in range(3, LIMITS.rows + 1)},
    )
    rows = {"Class 1": "red", "Class 2": "blue", "pictures-1": red, "pictures-2": blue, **no_rows}
    return {
        "on_adapt": [{**own, "samples": mixed[:2], "Method": "text-probe", "Steps": 1, **rows}],
        "on_adapt_unlabelled": [{"unlabelled": mixed, "unlabelled-names": "red, blue"}],
        "on_make_weights": [own],
        "on_try": [{**own, "samples": mixed[:2]}],
        "on_bring": [{**own, "bring": recipe, "samples": mixed[:2]}],
        "on_example": [{}],
        "on_inside": [own],
        "on_anyway": [own],
        "on_scale": [{**own, "turn-1": 0.5}],
        "answer": [(samples, recipe, "")],
        "share": [(recipe,)],
        "on_forget": [{"forget-target": mixed, "forget-control": mixed}],
        "predict": [(samples, "red, blue")],
        "adapt": [(packed, samples, "text-probe", 1, 0, 0.1, "photo")],
        "adapt_unlabelled": [(samples, "red, blue", "auto", 0, None)],
        "compare": [(samples, recipe)],
        "forget_classes": [(packed, packed, 0.9, 0)],
        "bank": [()],
        "inside": [(recipe,)],
        "turn": [(samples, recipe, {}, {})],
        "weights": [(recipe,)],
        "on_bank": [()],
        "on_strength_images": [{page_events.OWN: load_forget(engine), "forget-shows": OWN}],
    }


def values_of(event, alternatives):
    """The first of these that the event has inputs for, as Gradio would hand them over."""
    for values in alternatives:
        if isinstance(values, tuple):
            return list(values)
        if set(values) <= set(map(page_events.name_of, event.inputs)):
            return [page_events.values_for(event, values)]
    raise AssertionError(f"nothing to give to {event.fn.__name__}")


def test_every_event_of_the_devices_lane_survives_the_way_to_a_fork_and_back(page, asking, given):
    seen = set()
    for name, event in page_events.events_of(page):
        if event.concurrency_id != DEVICE["concurrency_id"]:
            continue
        about = gr.EventData(event.inputs and event.inputs[0], {"example": "1"})
        arguments, *_ = special_args(event.fn, values_of(event, given[name]), asking, about)
        answer = event.fn(*arguments)
        states = list(itertools.islice(answer, STATES)) if inspect.isgenerator(answer) else [answer]
        assert states, name
        for state in states:
            if isinstance(state, dict) and any(isinstance(key, gr.blocks.Block) for key in state):
                assert set(state) <= set(event.outputs), "the page's own components, not their copies"
            values = list(state.values()) if isinstance(state, dict) else state
            assert text.page.BROKEN not in str(values), name
        seen.add(name)
    assert seen == set(given)


def test_a_worked_example_comes_back_from_the_fork_as_what_was_asked_for(page, asking):
    event = page_events.event_named(page, "on_example", among="shows")
    for place, example in enumerate(FEW_SHOT_EXAMPLES):
        about = gr.EventData(None, {"example": str(place)})
        arguments, *_ = special_args(event.fn, [page_events.values_for(event)], asking, about)
        saved = page_events.by_name(event.fn(*arguments))[page_events.OWN]
        assert saved.recipe.classes == tuple(row.name for row in example.request.rows)
