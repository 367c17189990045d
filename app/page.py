"""The page, put together from its tabs, and how it is served.

page = build(open_engine())
address = launch(page)
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.middleware import Middleware

from app import text, views
from app.api import add_endpoints, add_model_endpoints
from app.edge import RequestGuard
from app.events import current_session, stop_run_on_close
from app.examples import ASK_EXAMPLES, FOLDER
from app.handlers.ask import ask
from app.limits import IMAGE_ENDINGS, LIMITS
from app.mcp_tools import accept_file_lists
from app.runtime import limit_malloc_arenas
from app.session import CurrentModel, Engines, OpenedModel, Runs
from app.tabs import components
from app.tabs.ask import ask_tab
from app.tabs.forget import forget_tab
from app.tabs.models import models_tab
from app.tabs.teach import teach_tab
from app.tabs.unlabelled import TAB_ID, unlabelled_tab

__all__ = ["build", "launch"]

STATIC = Path(__file__).with_name("static")
STYLE_SHEET = STATIC / "theme.css"
SCRIPTS = [STATIC / name for name in ("check_files.js", "drop.js", "folder.js", "copy.js", "scroll.js")]

_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def build(opened: OpenedModel, engines: Engines | None = None, *, fixed: bool = False) -> gr.Blocks:
    """The whole page. Answers the first example on the way, which also warms the model up.

    `engines` holds the models that visitors choose; where the choice is `fixed`, there is only one.
    """
    gr.set_static_paths([FOLDER])
    first_example = ASK_EXAMPLES[0]
    *_, opening = ask(opened.engine, first_example.paths, first_example.class_text)
    engines = engines or Engines(opened.engine, name=opened.name)
    current = CurrentModel(engines, current_session)
    runs, fetches = Runs(), Runs()  # a model may be fetched beside a run
    with gr.Blocks(
        title=text.page.TITLE,
        analytics_enabled=False,
        delete_cache=(LIMITS.sweep_seconds, LIMITS.keep_seconds),
    ) as page:
        components.html_area(views.render_header(), name="header")
        if opened.reason:
            components.html_area(views.render_banner(opened.reason), name="banner")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab(text.teach.TAB, id="teach"):
                taught = teach_tab(page, current, runs, own_bank=opened.own_bank)
            with gr.Tab(text.unlabelled.TAB, id=TAB_ID):
                unlabelled = unlabelled_tab(page, tabs, current, runs, own_bank=opened.own_bank)
            with gr.Tab(text.ask.TAB, id="ask"):
                ask_tab(current, runs, opening)
            with gr.Tab(text.forget.TAB, id="forget"):
                forgotten = forget_tab(current, runs, own_bank=opened.own_bank)
            with gr.Tab(text.model.TAB, id="model-tab"):
                models_tab(page, current, fetches, sides=[taught, unlabelled, forgotten], fixed=fixed)
        add_endpoints(current, runs)
        if not fixed:
            add_model_endpoints(engines, fetches)
        components.html_area(views.render_footnote(), name="footnote")
        stop_run_on_close(page, runs)
    return page


def launch(page: gr.Blocks, *, host: str | None = None, port: int | None = None, mcp: bool = False) -> str:
    """Serve the page in the background, safely for strangers; returns its address.

    Without a host, GRADIO_SERVER_NAME chooses, else 127.0.0.1; without a port, it is the first free one from
    GRADIO_SERVER_PORT, else from 7860. With `mcp` the endpoints are also tools, at /gradio_api/mcp/.
    """
    limit_malloc_arenas()
    page.queue(max_size=LIMITS.waiting, default_concurrency_limit=4, api_open=False)
    _, address, _ = page.launch(
        server_name=host, server_port=port, prevent_thread_lock=True, **_launch_options(mcp=mcp)
    )
    if page.mcp_server_obj is not None:
        accept_file_lists(page.mcp_server_obj)
    return str(address)


def _launch_options(*, mcp: bool) -> dict[str, Any]:
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
        "theme": _theme(),
        "css_paths": [STYLE_SHEET],
        "js": _script(),
        "i18n": gr.I18n(en=text.page.GRADIO_WORDS),
        "_frontend": False,  # no request to itself, at which Gradio gives up after 3 s on a busy machine
    }


def _theme() -> gr.themes.Base:
    """Monochrome, the stock theme whose colours all pass the contrast rules, light and dark.

    The fonts are the visitor's own, so that nothing is fetched.
    """
    sizes = gr.themes.sizes
    return gr.themes.Monochrome(
        font=_SANS, font_mono=_MONO, radius_size=sizes.radius_md, spacing_size=sizes.spacing_md
    )


def _script() -> str:
    """Our scripts as the one function that Gradio calls when the page is there; with our words and limits."""
    settings = {
        "words": text.page.FILE_MESSAGES,
        "copied": text.page.COPIED,
        "endings": IMAGE_ENDINGS,
        "most": {  # files by the name of a drop zone
            "images": LIMITS.images,
            "samples": LIMITS.samples,
            "roll": LIMITS.unlabelled_images,
            "others": LIMITS.support_images,
        },
        "bytes": {
            "image": LIMITS.image_megabytes << 20,
            "file": LIMITS.file_megabytes << 20,
            "all": LIMITS.upload_megabytes << 20,
        },
        "side": LIMITS.packed_side,
    }
    calls = "\n".join(f"({path.read_text(encoding='utf-8')})({json.dumps(settings)});" for path in SCRIPTS)
    return f"() => {{\n{calls}\n}}"
