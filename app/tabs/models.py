"""The tab where a visitor chooses the model that answers them. Knows nothing of torch.

Fetching has a lane of its own, one at a time, so that nobody who only asks waits for a download.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Any

import gradio as gr

import atlas_engine as atlas
from app import alerts, components
from app import model_text as text
from app.engines import Engines
from app.events import PRIVATE, QUICK, user_message, visitor
from app.handlers.forget import ForgetResult
from app.handlers.models import ModelFacts, as_row, choose, facts_of, offered
from app.markup import heading, note
from app.state import Runs, SavedResult
from app.tabs.forget import ForgetSide
from app.tabs.result import ResultSide
from app.tabs.stopping import departing

__all__ = ["models_tab"]

Side = ResultSide | ForgetSide

FETCH: dict[str, Any] = {"concurrency_id": "fetch", "concurrency_limit": 1}
Frame = list[Any]  # one value for each of: alert, status, card, stop


def models_tab(page: gr.Blocks, engines: Engines, *, sides: Sequence[Side] = (), fixed: bool = False) -> None:
    """Lay out the tab inside the current Blocks.

    `sides` show results: those of a former model go when another is chosen. `fixed` is for a host where
    models cannot be opened later: the tab only tells which one it is.
    """
    components.html_area(note(text.FIXED if fixed else text.LEAD), name="model-lead")
    facts = _card(facts_of(engines.first, engines.first_name))
    if fixed:
        components.html_area(facts, name="model-card")
        return
    runs = Runs()  # its own, since a model may be fetched beside a run
    names = [(text.OFFERED.get(name, name), name) for name in offered(engines)]
    with gr.Row(elem_classes="at-columns"):
        with gr.Column(scale=5, min_width=320):
            model = gr.Dropdown(
                names,
                value=engines.first_name,
                label=text.LABEL,
                info=text.HELP,
                allow_custom_value=True,
                elem_id="model",
            )
            use, stop = components.run_buttons(text.CHOOSE, start="use-model", stop="stop-model")
            alert = components.html_area(name="model-alert")
        with gr.Column(scale=7, min_width=320):
            card = components.html_area(facts, name="model-card")
            status = components.html_area(name="model-status")
    chosen = use.click(
        _choosing(engines, runs),
        [model],
        [alert, status, card, stop],
        show_progress="minimal",
        show_progress_on=status,
        **PRIVATE,
        **FETCH,
    )
    stop.click(_stopping(runs), None, [status, stop], **QUICK)
    for side in sides:
        renewed = _renewing(engines, side)
        side.then_panels(chosen.then(renewed, side.held.parts, side.outputs, **QUICK))
    departing(page, runs)
    _endpoints(engines, runs)


def _choosing(engines: Engines, runs: Runs) -> Callable[[gr.Request, str | None], Iterator[Frame]]:
    def on_choose(request: gr.Request, name: str | None) -> Iterator[Frame]:
        session = str(request.session_hash)
        try:
            with runs.sign(session) as sign:
                for state in choose(engines, session, name, sign=sign):
                    card = _card(_facts(engines, session)) if state.done else gr.skip()
                    status = _status(state.doing, state.share)
                    yield [alerts.NOTHING, status, card, gr.update(visible=not state.done)]
        except Exception as error:  # the border: a visitor gets a sentence, whatever happened
            sentence = text.still(engines.name_of(session), user_message(error))
            yield [alerts.alert_html(sentence), "", gr.skip(), gr.update(visible=False)]

    return on_choose


def _stopping(runs: Runs) -> Callable[[gr.Request], tuple[str, Any]]:
    def on_stop(request: gr.Request) -> tuple[str, Any]:
        """Said at once, though what is under way ends only with its step."""
        runs.stop(request.session_hash)
        return _status(text.STOPPED, None), gr.update(visible=False)

    return on_stop


def _renewing(engines: Engines, side: Side) -> Callable[[Any, str], Frame]:
    def on_model(kept: Any, shows: str) -> Frame:  # noqa: ANN401 - what this side holds
        """What was learned with another model goes, since this one cannot use it."""
        try:
            result = side.held.shown(kept, shows)
        except atlas.AtlasError:  # it has expired
            return side.empty
        return [gr.skip()] * len(side.empty) if result is None or _fits(result, engines) else side.empty

    return on_model


def _fits(kept: SavedResult | ForgetResult, engines: Engines) -> bool:
    try:
        engine = engines.of(visitor())
        kept.recipe.check(model_fingerprint=engine.fingerprint, bank_fingerprint=engine.bank.fingerprint)
    except atlas.AtlasError:
        return False
    return True


def _facts(engines: Engines, session: str | None) -> ModelFacts:
    return facts_of(engines.of(session), engines.name_of(session))


def _card(facts: ModelFacts) -> str:
    donors = text.donors(len(facts.donors), facts.storage) if facts.donors else text.NO_BANK
    cells = (
        text.OFFERED.get(facts.name, facts.name),
        text.weights(facts.millions),
        f"{facts.pixels} px",
        donors,
    )
    rows = "".join(
        f"<tr><th scope='row'>{escape(column)}</th><td>{escape(cell)}</td></tr>"
        for column, cell in zip(text.BANK_COLUMNS, cells, strict=True)
    )
    return f"{heading(text.NOW_HEADING)}<table class='at-table'><tbody>{rows}</tbody></table>"


def _status(doing: str, share: float | None) -> str:
    bar = "" if share is None else f"<div class='at-track'><span style='width:{share:.1%}'></span></div>"
    told_now = f"<p class='at-doing'><span role='status'>{escape(doing)}</span></p>"
    return f"<div class='at-run'>{told_now}{bar}</div>"


def _endpoints(engines: Engines, runs: Runs) -> None:
    """`/models` and `/choose` for programs; a choice holds for the client that makes it."""

    def models() -> dict[str, Any]:
        return {"now": engines.name_of(visitor()), "offered": offered(engines)}

    def choose_model(request: gr.Request, model: str) -> dict[str, Any]:
        session = str(request.session_hash)
        try:
            if dict(request.headers).get("x-gradio-user") == "mcp":
                raise atlas.AtlasError(text.SHARED)
            with runs.sign(session) as sign:
                *_, last = choose(engines, session, model, sign=sign)
            if last.doing == text.STOPPED:
                raise atlas.AtlasError(text.STOPPED)
            return as_row(_facts(engines, session))
        except Exception as error:
            raise gr.Error(user_message(error), print_exception=False) from None

    with gr.Row(visible=False):
        name = gr.Textbox(label=text.API_MODEL)
        facts, known = gr.JSON(label=text.API_FACTS), gr.JSON(label=text.API_FACTS)
        do_choose, do_list = gr.Button(), gr.Button()
    do_list.click(models, None, known, api_name="models", api_description=text.API_MODELS, queue=False)
    do_choose.click(choose_model, [name], facts, api_name="choose", api_description=text.API_CHOOSE, **FETCH)
