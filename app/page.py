"""The page, put together from its tabs, and the only way it is served. Knows nothing of torch."""

from __future__ import annotations

from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from app import alerts, cards, components, forget_text, model_text, roll_text, text
from app.edge import RequestGuard
from app.engines import Engines
from app.events import visitor
from app.examples import EXAMPLES, FOLDER
from app.handlers.ask import ask
from app.limits import LIMITS
from app.model import Opened
from app.runtime import share_heaps
from app.state import Runs
from app.tabs.ask import ask_tab
from app.tabs.endpoints import endpoints
from app.tabs.forget import forget_tab
from app.tabs.forget_endpoint import forget_endpoint
from app.tabs.inside_endpoints import inside_endpoints
from app.tabs.models import models_tab
from app.tabs.stopping import departing
from app.tabs.teach import teach_tab
from app.tabs.unlabelled import TAB_ID, unlabelled_tab
from app.theme import STYLE_SHEET, script, theme
from app.tools import mend

__all__ = ["build", "launch"]


def build(opened: Opened, engines: Engines | None = None, *, fixed: bool = False) -> gr.Blocks:
    """The whole page. Answers the first example on the way, which also warms the model up.

    `engines` holds the models that visitors choose; where the choice is `fixed`, there is only one.
    """
    gr.set_static_paths([FOLDER])
    first, runs = EXAMPLES[0], Runs()
    *_, opening = ask(opened.engine, first.paths, first.class_text)
    engines = engines or Engines(opened.engine, name=opened.name)
    answering = engines.answering(visitor)
    with gr.Blocks(
        title=text.TITLE,
        analytics_enabled=False,
        delete_cache=(LIMITS.sweep_seconds, LIMITS.keep_seconds),
    ) as page:
        components.html_area(cards.header_html(), name="header")
        if opened.reason:
            components.html_area(alerts.banner_html(opened.reason), name="banner")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab(text.TAB_TEACH, id="teach"):
                lesson = teach_tab(page, answering, runs, bundled=opened.own_bank)
            with gr.Tab(roll_text.TAB, id=TAB_ID):
                roll = unlabelled_tab(page, tabs, answering, runs, bundled=opened.own_bank)
            with gr.Tab(text.TAB_ASK, id="ask"):
                ask_tab(answering, runs, opening)
            with gr.Tab(forget_text.TAB, id="forget"):
                forgotten = forget_tab(answering, runs, bundled=opened.own_bank)
            with gr.Tab(model_text.TAB, id="model-tab"):
                models_tab(page, engines, sides=[lesson, roll, forgotten], fixed=fixed)
        endpoints(answering, runs)
        forget_endpoint(answering, runs)
        inside_endpoints(answering)
        components.html_area(cards.footnote_html(), name="footnote")
        departing(page, runs)
    return page


def launch(page: gr.Blocks, *, host: str | None = None, port: int | None = None, mcp: bool = False) -> str:
    """Serve the page in the background, safely for strangers, and give back its address.

    Without a host, GRADIO_SERVER_NAME chooses, else 127.0.0.1; without a port, it is the first free one from
    GRADIO_SERVER_PORT, else from 7860. With `mcp` the endpoints are also tools, at /gradio_api/mcp/.
    """
    share_heaps()
    page.queue(max_size=LIMITS.waiting, default_concurrency_limit=4, api_open=False)
    _, address, _ = page.launch(
        server_name=host, server_port=port, prevent_thread_lock=True, **_safely(mcp=mcp)
    )
    if page.mcp_server_obj is not None:
        mend(page.mcp_server_obj)
    return str(address)


def _safely(*, mcp: bool) -> dict[str, Any]:
    guard = Middleware(
        RequestGuard,
        max_bytes=LIMITS.mcp_bytes if mcp else LIMITS.request_bytes,
        max_upload_bytes=LIMITS.upload_megabytes << 20,
    )
    return {
        "mcp_server": mcp,
        "quiet": True,
        "share": False,
        "show_error": False,
        "strict_cors": True,
        "ssr_mode": False,
        "run_history": False,
        "enable_monitoring": False,
        "max_file_size": f"{LIMITS.file_megabytes}mb",
        "state_session_capacity": LIMITS.sessions,
        "footer_links": ["api"],
        "app_kwargs": {"middleware": [guard]},
        "theme": theme(),
        "css_paths": [STYLE_SHEET],
        "js": script(),
        "i18n": gr.I18n(en=text.OF_GRADIO),
        "_frontend": False,  # no second look at itself, at which Gradio gives up after 3 s on a busy machine
    }
