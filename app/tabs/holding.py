"""Whose result a side of the page shows: the worked example's, the visitor's own, or none. Knows no torch.

The server keeps a visitor's own for a while only, and hands out what the state began with afterwards. So the
page itself tells with every event which one it shows: one that is gone is told from one that never was, and
the example is never taken for the visitor's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import gradio as gr

import atlas_engine as atlas
from app.limits import LIMITS

__all__ = ["EXAMPLE", "NOTHING", "OWN", "ResultState", "hold", "holding"]

EXAMPLE, OWN, NOTHING = "example", "own", "nothing"

Result = TypeVar("Result")


@dataclass(frozen=True)
class ResultState(Generic[Result]):
    """The example that the page opens on, the visitor's own behind it, and which of them is shown."""

    opening: Result | None
    kept: gr.State
    shows: gr.Textbox  # never seen; its value comes from the page
    expired: str  # what is said of one that is gone

    @property
    def parts(self) -> list[Any]:
        """What `shown` takes, and `holding` gives values for."""
        return [self.kept, self.shows]

    def shown(self, kept: Result | None, shows: str | None) -> Result | None:
        """The result that the page shows; an AtlasError where it was the visitor's own and is gone."""
        if shows == EXAMPLE:
            return self.opening
        if shows == OWN and kept is None:
            raise atlas.AtlasError(self.expired)
        return kept


def hold(opening: Result | None, *, name: str, expired: str) -> ResultState[Result]:
    """Make the parts inside the current Blocks."""
    kept = gr.State(None, time_to_live=LIMITS.keep_seconds)
    shows = gr.Textbox(EXAMPLE, visible="hidden", elem_id=name)
    return ResultState(opening, kept, shows, expired)


def holding(kept: Result | None) -> list[Any]:
    """Values for the parts: from now on the page shows this result, which is the visitor's, or none."""
    return [kept, NOTHING if kept is None else OWN]
