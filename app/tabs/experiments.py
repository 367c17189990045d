"""The tab of experiments: forgetting on purpose, and how alike the task vectors of the bank are."""

from __future__ import annotations

import gradio as gr

from app import text, views
from app.events import DEVICE, PRIVATE, html_errors
from app.handlers.inside import list_task_vectors, similarity_map
from app.session import CurrentModel, Runs
from app.tabs import components
from app.tabs.forget import ForgetSide, forget_tab

__all__ = ["experiments_tab"]


def experiments_tab(current: CurrentModel, runs: Runs, *, own_bank: bool) -> ForgetSide:
    """Lay out the tab inside the current Blocks; the map is drawn when its panel is opened."""
    with gr.Tabs(selected="forget"):
        with gr.Tab(text.forget.TAB, id="forget"):
            forgotten = forget_tab(current, runs, own_bank=own_bank)
        with gr.Tab(text.inside.BANK_TAB, id="bank-tab") as bank:
            components.html_area(views.render_note(text.inside.BANK_HEADING), name="bank-lead")
            whole_bank = components.html_area(name="bank-task-vectors")

    @html_errors
    def on_bank() -> str:
        engine = current.engine()
        return views.render_bank(list_task_vectors(engine), similarity_map(engine))

    bank.select(on_bank, None, whole_bank, show_progress="minimal", **PRIVATE, **DEVICE)
    return forgotten
