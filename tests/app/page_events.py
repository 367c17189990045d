"""The page's events as a test calls them: by their handler's name, with values by the names of components.

A component is called by its `elem_id` or, where it has none, by its label; the visitor's own result is `OWN`.
"""

from __future__ import annotations

import gradio as gr

OWN = "the visitor's own result"
SHOWS = {"shows", "forget-shows"}


def events_of(page):
    """(handler's name, event) for each event of the page that has a handler."""
    return [(one.fn.__name__, one) for one in page.fns.values() if hasattr(one.fn, "__name__")]


def event_named(page, name, *, among=None):
    """The one event of that handler; of several, the one that has a component called `among` as an input."""
    (found,) = [
        event
        for handler, event in events_of(page)
        if handler == name and (among is None or among in map(name_of, event.inputs))
    ][:1]
    return found


def name_of(component):
    if isinstance(component, gr.State):
        return OWN
    return component.elem_id or getattr(component, "label", None)


def shows(event):
    """The name of the input that says whose result the page shows."""
    (found,) = {name_of(one) for one in event.inputs if isinstance(one, gr.Textbox)} & SHOWS
    return found


def values_for(event, given=None):
    """What an event is given: these values by component, and for others what the page opens with."""
    given = dict(given or {})
    values = {}
    for component in event.inputs:
        opened_with = None if isinstance(component, gr.Gallery | gr.State) else component.value
        values[component] = given.pop(name_of(component), opened_with)
    assert not given, f"the event has no input called {sorted(given)}"
    return values


def by_name(updates):
    """Updates by the names of components."""
    return {name_of(component): value for component, value in updates.items()}
