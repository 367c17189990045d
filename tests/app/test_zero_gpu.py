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

from app.engines import Engines
from app.events import DEVICE
from app.examples import LESSONS
from app.handlers.takeaway import save_recipe
from app.limits import LIMITS
from app.model import Opened
from app.page import build
from app.prepared_examples import load_forgotten, load_worked
from app.space import through_gpu
from app.state import SavedResult
from app.tabs.holding import EXAMPLE, OWN
from app.text import BROKEN

VISITOR = "a-visitors-session"
FRAMES = 3  # of a run; what it gives at its end is pickled in test_space


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
    built = build(Opened(engine), engines, fixed=True)
    through_gpu(built, engines, engine, gpu=pickling)
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
    """What a visitor or a program gives to each event of the device's lane, by the handler's name."""
    kept = load_worked(engine, LESSONS[0])
    pictures = [
        [(str(path), None) for path in sorted((squares / "teach" / name).iterdir())]
        for name in ("red", "blue")
    ]
    mixed = [(path, name) for name, some in zip(("red", "blue"), pictures, strict=True) for path, _ in some]
    rows = ["red", "blue", *[""] * (LIMITS.rows - 2), *pictures, *[None] * (LIMITS.rows - 2)]
    samples = [path for path, _ in pictures[0][:2]]
    recipe = save_recipe(kept.recipe, tmp_path_factory.mktemp("recipe"))
    packed = str(archive)
    return {
        "on_adapt": [
            (kept, OWN, mixed[:2], "text-probe", 1, 0.1, 0, *rows),
            (None, EXAMPLE, mixed, "red, blue", "auto", 0),
        ],
        "on_bring": [(recipe, kept, OWN, mixed[:2])],
        "on_example": [(None, EXAMPLE)],
        "on_make": [(kept, OWN)],
        "on_ask": [(mixed[:2], "red, blue")],
        "on_forget": [(None, EXAMPLE, mixed, mixed, 95, 0)],
        "predict": [(samples, "red, blue")],
        "adapt": [(packed, samples, "text-probe", 1, 0, 0.1)],
        "adapt_unlabelled": [(samples, "red, blue", "auto", 0)],
        "compare": [(samples, recipe)],
        "forget_classes": [(packed, packed, 0.9, 0)],
        "bank": [()],
        "inside": [(recipe,)],
        "turn": [(samples, recipe, {}, {})],
        "weights": [(recipe,)],
        "on_turn": [(kept, OWN, *[0.5] * LIMITS.turned, "", 1.0, "", 1.0)],
        "on_bank": [()],
        "on_slide": [(load_forgotten(engine), OWN, 50)],
    }


def test_every_event_of_the_devices_lane_survives_the_way_to_a_fork_and_back(page, asking, given):
    seen = set()
    for event in page.fns.values():
        if event.concurrency_id != DEVICE["concurrency_id"]:
            continue
        name = event.fn.__name__
        (values,) = [some for some in given[name] if len(some) == len(event.inputs)]
        about = gr.EventData(event.inputs and event.inputs[0], {"example": "1"})
        arguments, *_ = special_args(event.fn, list(values), asking, about)
        told = event.fn(*arguments)
        frames = list(itertools.islice(told, FRAMES)) if inspect.isgenerator(told) else [told]
        assert frames, name
        assert BROKEN not in str(frames), name
        seen.add(name)
    assert seen == set(given)


def test_a_worked_example_comes_back_from_the_fork_as_what_was_asked_for(page, asking):
    event = next(one for one in page.fns.values() if getattr(one.fn, "__name__", "") == "on_example")
    for place, example in enumerate(LESSONS):
        arguments, *_ = special_args(
            event.fn, [None, EXAMPLE], asking, gr.EventData(None, {"example": str(place)})
        )
        (kept,) = [value for value in event.fn(*arguments) if isinstance(value, SavedResult)]
        assert kept.recipe.classes == tuple(row.name for row in example.lesson.rows)
