"""The link that opens a classifier, ready to try: making one, and opening the page by one."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

import gradio as gr

import atlas_engine as atlas
from app import text, views
from app.events import PRIVATE, Values, user_message
from app.handlers.few_shot import SavedResult
from app.handlers.takeaway import check_recipe
from app.session import CurrentModel
from app.shares import Shares
from app.tabs import components
from app.tabs.result_state import ResultState

__all__ = ["QUERY", "SharePanel", "open_shared", "share_query"]

QUERY = "shared"  # the key of a shared classifier's name in the page's address


@dataclass(frozen=True)
class SharePanel:
    """The button that makes a link, and the place where it shows."""

    link: gr.HTML

    @classmethod
    def create(cls, state: ResultState[SavedResult], shares: Shares) -> SharePanel:
        """Lay it out and wire it; nothing is kept before the button is pressed."""
        lead = views.render_lead(text.share.HEADING, text.share.HELP, level=3)
        components.html_area(lead, name="share-lead")
        with gr.Row(elem_classes="at-buttons"):
            make = gr.Button(text.share.MAKE, size="sm", elem_id="share")
        link = components.html_area(name="shared-link")

        def on_share(values: Values) -> str:
            try:
                result = state.read(values)
                if result is None:
                    raise atlas.AtlasError(text.share.NOTHING)
                return views.render_shared(share_query(shares.keep(result.recipe)))
            except Exception as error:  # the border: a visitor gets a sentence, whatever happened
                return views.render_alert(user_message(error))

        make.click(on_share, state.components, link, queue=False, **PRIVATE)
        return cls(link)


def share_query(name: str) -> str:
    """The query of a link to a shared classifier.

    >>> share_query("q7d0")
    '?shared=q7d0'
    """
    return f"?{urlencode({QUERY: name})}"


def open_shared(current: CurrentModel, shares: Shares, name: str) -> SavedResult:
    """The shared classifier of that name; an AtlasError where it is gone, or for another model."""
    recipe = shares.load(name)
    check_recipe(recipe, current.engine(), name=text.share.LINK)
    return SavedResult(recipe, text.share.SHARED)
