"""The page, put together from its states, and how it is served.

opened, storage, runs = open_engine(), Storage.open(), PageRuns()
server = launch(build(opened, runs=runs), opened, storage=storage, runs=runs)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr

from app import text, views
from app.api import add_endpoints, add_model_endpoints
from app.api_try import add_try_endpoints
from app.events import current_session, stop_run_on_close
from app.examples import FEW_SHOT_EXAMPLES, FOLDER
from app.handlers.home import build_home_example
from app.health import Health, check_bank, check_decoder, check_disk
from app.limits import IMAGE_ENDINGS, LIMITS
from app.mcp_tools import accept_file_lists, keep_copies_in
from app.predictors import Predictors
from app.prepared_examples import RECIPE, load_few_shot
from app.replicas.engine import check_replicas
from app.serving import LiveServer, serve
from app.session import CurrentModel, Engines, OpenedModel, PageRuns
from app.shares import Shares
from app.storage import Storage
from app.tabs import components
from app.tabs.experiments import experiments_tab
from app.tabs.models import ModelChip
from app.tabs.teach import TEACH, TRY, TeachTab
from app.tabs.trying import TryTab

__all__ = ["build", "launch"]

STATIC = Path(__file__).with_name("static")
STYLE_SHEET = STATIC / "theme.css"
SCRIPTS = [
    STATIC / f"{name}.js"
    for name in ("check_files", "move", "drop", "folder", "copy", "scroll", "camera", "leaving", "tabs")
]

# Pixels, shorter side, of a camera's frames: to learn from, and to answer only.
RECORDED_SIDE, LIVE_SIDE = 448, 224
_SANS = ("ui-sans-serif", "system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "sans-serif")
_MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def build(
    opened: OpenedModel,
    engines: Engines | None = None,
    *,
    runs: PageRuns | None = None,
    fixed: bool = False,
    session: Callable[[], str | None] = current_session,
) -> gr.Blocks:
    """The whole page. Tells the first example on the way, which also warms the model up.

    `engines` holds the models that visitors choose; where the choice is `fixed`, there is only one. `session`
    tells whose event is running.
    """
    gr.set_static_paths([FOLDER])
    engine, first = opened.engine, FEW_SHOT_EXAMPLES[0]
    example = load_few_shot(engine, first)
    engines = engines or Engines(engine, name=opened.name)
    current, predictors = CurrentModel(engines, session), Predictors()
    shares = Shares()
    runs = runs or PageRuns()
    with gr.Blocks(
        title=text.page.TITLE,
        analytics_enabled=False,
        delete_cache=(LIMITS.sweep_seconds, LIMITS.keep_seconds),
    ) as page:
        chip = ModelChip.create(current, views.render_header(), fixed=fixed)
        if opened.reason:
            components.html_area(views.render_banner(opened.reason), name="banner")
        with gr.Tabs(elem_id="tabs") as tabs:
            with gr.Tab(text.teach.TAB, id=TEACH):
                teach = TeachTab.create(build_home_example(engine, example))
            with gr.Tab(text.trying.TAB, id=TRY):
                trying = TryTab.create(
                    current,
                    predictors,
                    runs.learning,
                    example=example,
                    file=first.path / RECIPE,
                    shares=shares,
                    own_bank=opened.own_bank,
                )
            with gr.Tab(text.page.EXPERIMENTS, id="experiments"):
                forgotten = experiments_tab(current, runs.learning, own_bank=opened.own_bank)
        teach.wire(page, tabs, current, runs.learning, trying, shares=shares)
        trying.wire(teach.form.rows)
        chip.wire(page, runs.fetching, sides=[trying.side, forgotten])
        add_endpoints(current, runs.learning)
        add_try_endpoints(current, predictors, shares)
        if not fixed:
            add_model_endpoints(engines, runs.fetching)
        components.html_area(views.render_footnote(), name="footnote")
        stop_run_on_close(page, runs.learning)
    return page


def launch(
    page: gr.Blocks,
    opened: OpenedModel,
    *,
    storage: Storage,
    runs: PageRuns,
    host: str | None = None,
    port: int | None = None,
    mcp: bool = False,
    share_device: bool = True,
) -> LiveServer:
    """Serve the page in the background, safely for strangers.

    Without a host, GRADIO_SERVER_NAME chooses, else 127.0.0.1; without a port, it is the first free one from
    GRADIO_SERVER_PORT, else from 7860. With `mcp` the endpoints are also tools, at /gradio_api/mcp/.
    `storage` has to be open before the page is built, and `runs` are those that it was built with.
    """
    health = Health(
        {
            "model": lambda: "",  # it is open, and has answered the first example
            "bank": lambda: check_bank(opened.engine),
            "decoder": check_decoder,
            "disk": lambda: check_disk(storage),
            **({"replicas": lambda: check_replicas(opened.engine)} if opened.replicas else {}),
        }
    )
    health.refresh()
    server = serve(
        page,
        _launch_options(),
        storage=storage,
        runs=runs,
        health=health,
        host=host,
        port=port,
        mcp=mcp,
        share_device=share_device,
        lanes=max(opened.replicas, 1),
    )
    if page.mcp_server_obj is not None:
        accept_file_lists(page.mcp_server_obj)
        keep_copies_in(storage.uploads)
    return server


def _launch_options() -> dict[str, Any]:
    return {
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
        "leaving": text.page.LEAVING,
        "endings": IMAGE_ENDINGS,
        "most": {  # files by the name of a drop zone
            "samples": LIMITS.samples,
            "unlabelled": LIMITS.unlabelled_images,
            "others": LIMITS.support_images,
        },
        "bytes": {
            "image": LIMITS.image_megabytes << 20,
            "file": LIMITS.file_megabytes << 20,
            "all": LIMITS.upload_megabytes << 20,
        },
        "side": LIMITS.packed_side,
        "camera": {
            "words": text.camera.MESSAGES,
            "side": RECORDED_SIDE,
            "liveSide": LIVE_SIDE,
            "most": LIMITS.recorded_frames,
        },
    }
    calls = "\n".join(f"({path.read_text(encoding='utf-8')})({json.dumps(settings)});" for path in SCRIPTS)
    return f"() => {{\n{calls}\n}}"
