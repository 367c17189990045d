"""Whose result a side of the page shows: the worked example's, the visitor's own, or none.

The server keeps a visitor's own result for a while only, and hands out what the state began with afterwards.
So the page itself says with every event which one it shows: a result that expired is told from one that
never was, and the example is never taken for the visitor's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import gradio as gr

import atlas_engine as atlas
from app.events import Updates, Values
from app.limits import LIMITS

__all__ = ["EXAMPLE", "NONE", "OWN", "ResultState"]

EXAMPLE, OWN, NONE = "example", "own", "nothing"  # what the page can show

Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultState(Generic[Result]):
    """The example that the page opens on, the visitor's own result, and which of them is shown."""

    example: Result | None
    own: gr.State
    shows: gr.Textbox  # never seen; its value comes from the page
    expired: str  # the sentence for a result that is gone

    @classmethod
    def create(cls, example: Result | None, *, name: str, expired: str) -> ResultState[Result]:
        """Make its components inside the current Blocks."""
        own = gr.State(None, time_to_live=LIMITS.keep_seconds)
        shows = gr.Textbox(EXAMPLE, visible="hidden", elem_id=name)
        return cls(example, own, shows, expired)

    @property
    def components(self) -> set[gr.components.Component]:
        """What `read` needs of an event's inputs, and `store` of its outputs."""
        return {self.own, self.shows}

    def read(self, values: Values) -> Result | None:
        """The result that the page shows; an AtlasError where it was the visitor's own and has expired."""
        own: Result | None = values[self.own]
        if values[self.shows] == EXAMPLE:
            return self.example
        if values[self.shows] == OWN and own is None:
            raise atlas.AtlasError(self.expired)
        return own

    def store(self, result: Result | None) -> Updates:
        """From now on the page shows this result, which is the visitor's, or none."""
        return {self.own: result, self.shows: NONE if result is None else OWN}
