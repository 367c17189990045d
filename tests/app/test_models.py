"""Choosing a model: for oneself alone, checked, built once; a refusal leaves everything as it was."""

from __future__ import annotations

from dataclasses import replace

import gradio as gr
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import atlas_engine as atlas
from app import text
from app.events import UNCHANGED
from app.examples import FEW_SHOT_EXAMPLES
from app.handlers.few_shot import adapt_few_shot
from app.handlers.models import choose_model, describe_model, offered_models
from app.handlers.settings import FewShotSettings
from app.handlers.takeaway import load_recipe, save_recipe
from app.handlers.uploads import ClassRow
from app.limits import LIMITS
from app.page import build
from app.prepared_examples import load_few_shot, load_forget
from app.session import CurrentModel, Engines, OpenedModel, Runs, open_engine
from app.tabs.result_state import EXAMPLE, NONE, OWN
from atlas_engine import library
from tests.app import page_events
from tests.serving import served
from tests.standins import TASKS, stand_in

ONE, TWO = "tiny-standin/one", "tiny-standin/two"


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """Two small models with checkpoints, by the names that visitors would type."""
    folder = tmp_path_factory.mktemp("hub")
    return {name: stand_in(folder / str(seed), seed=seed) for seed, name in enumerate((ONE, TWO))}


@pytest.fixture
def engines(engine, hub):
    return Engines(
        engine, name="bundled", prepare=lambda name: library.prepare(hub[name], cache=False), max_open=1
    )


def test_a_visitor_chooses_for_themselves_alone(engines):
    *steps, last = choose_model(engines, "ann", ONE)
    assert steps[0].doing == text.model.OPENING
    assert last.done
    assert engines.name_of("ann") == ONE
    assert engines.engine_of("ann").bank.tasks == TASKS
    assert engines.name_of("bob") == "bundled"
    assert engines.engine_of("bob") is engines.first
    assert engines.engine_of(None) is engines.first


def test_a_choice_that_is_stopped_leaves_the_former_model(engines):
    runs = Runs()
    with runs.begin("ann") as stop_signal:
        steps = choose_model(engines, "ann", ONE, stop_signal=stop_signal)
        assert next(steps).doing == text.model.OPENING
        runs.stop("ann")
        last = next(steps)
    assert (last.doing, last.stopped, last.done) == (text.model.STOPPED, True, False)
    assert engines.engine_of("ann") is engines.first


def test_a_model_that_is_open_is_not_opened_again(engines):
    list(choose_model(engines, "ann", ONE))
    list(choose_model(engines, "bob", ONE))
    assert engines.engine_of("bob") is engines.engine_of("ann")
    list(choose_model(engines, "ann", "bundled"))
    assert engines.engine_of("ann") is engines.first


def test_the_bank_is_built_with_progress_the_first_time_only(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    offer = stand_in(tmp_path / "hub", seed=2)
    for wanted in (["cars", "signs", "textures"], []):
        fresh = Engines(engine, name="bundled", prepare=lambda _: library.prepare(offer, cache=False))
        told = [step.doing for step in choose_model(fresh, "ann", ONE)]
        assert [line.rpartition("now ")[2].rstrip(" …") for line in told if ", now" in line] == wanted


def test_the_model_used_least_recently_makes_room_and_its_visitor_is_asked_to_choose_again(engines):
    list(choose_model(engines, "ann", ONE))
    held = engines.engine_of("ann")
    list(choose_model(engines, "bob", TWO))
    with pytest.raises(atlas.AtlasError, match=r"was put away to make room .* Choose it again"):
        engines.engine_of("ann")
    assert held.bank.tasks == TASKS  # whoever is in the middle of an answer finishes it
    list(choose_model(engines, "ann", ONE))
    assert engines.engine_of("ann").bank.tasks == TASKS


@pytest.fixture
def visitor(engines):
    """Whose event is running, as a list that tests change, and the model that answers them."""
    asking = [None]
    return asking, CurrentModel(engines, lambda: asking[0])


def test_a_run_that_has_begun_goes_on_with_its_model_whatever_is_chosen_meanwhile(
    engines, visitor, few_shot_request
):
    asking, current = visitor
    page = build(OpenedModel(engines.first), engines, session=current.session)
    asking[0] = "ann"
    list(choose_model(engines, "ann", ONE))
    begun_with = engines.engine_of("ann").fingerprint
    event = page_events.event_named(page, "on_adapt")
    given = {"Method": "text-probe", "Steps": 1}
    for place in range(1, LIMITS.rows + 1):
        row = few_shot_request.rows[place - 1] if place <= len(few_shot_request.rows) else ClassRow("", ())
        images = [(path, None) for path in row.paths]
        given |= {f"Class {place}": row.name, f"pictures-{place}": images}
    states = event.fn(gr.Request(session_hash="ann"), page_events.values_for(event, given))
    next(states)
    list(choose_model(engines, "bob", TWO))  # for which the model of the run has to make room
    with pytest.raises(atlas.AtlasError, match="was put away"):
        current.engine()
    *_, last = states
    assert page_events.by_name(last)[page_events.OWN].recipe.model_fingerprint == begun_with


def test_a_model_that_was_put_away_is_told_of_in_every_part_of_the_page(engines, visitor, engine):
    asking, current = visitor
    list(choose_model(engines, "ann", ONE))
    list(choose_model(engines, "bob", TWO))
    saved = load_few_shot(engine, FEW_SHOT_EXAMPLES[0])
    page = build(OpenedModel(engines.first), engines, session=current.session)
    asking[0] = "ann"
    seen = set()
    for name, event in page_events.events_of(page):
        if name in {"on_bank", "on_map", "on_scale", "on_make_weights", "on_result", "on_inside"}:
            owned = {page_events.OWN: saved, "shows": OWN}
            answer = event.fn(*([] if name == "on_bank" else [page_events.values_for(event, owned)]))
            told = answer if isinstance(answer, str) else str(list(answer.values()))
            assert "was put away" in told, name
            seen.add(name)
    assert len(seen) == 6


def test_who_closes_the_page_ends_their_own_build_and_keeps_what_was_chosen(engines):
    page = build(open_engine(), engines)
    closes = [event.fn for name, event in page_events.events_of(page) if name == "on_close"]
    assert len(closes) == 2
    on_choose = page_events.event_named(page, "on_choose").fn
    request = gr.Request(session_hash="ann")
    list(on_choose(request, ONE))
    assert engines.name_of("ann") == ONE
    states = on_choose(request, TWO)
    next(states)
    for close in closes:
        close(gr.Request(session_hash="bob"))
        close(request)
    *_, last = states
    assert text.model.STOPPED in page_events.by_name(last)["model-status"]
    assert engines.name_of("ann") == ONE, "the former choice is lost"


def test_a_choice_is_remembered_until_very_many_others_have_chosen(engines, monkeypatch):
    monkeypatch.setattr("app.session.LIMITS", replace(LIMITS, model_choices=3))
    for name in ("ann", "bob", "cyd"):
        engines.choose(name, ONE, engines.first)
    engines.engine_of("ann")  # who uses it keeps it
    engines.choose("dan", ONE, engines.first)
    assert [engines.name_of(name) for name in ("ann", "bob", "cyd")] == [ONE, "bundled", ONE]


@pytest.mark.parametrize(
    "name",
    [
        "",
        None,
        "ViT-B-32@/etc/passwd",
        "hf-hub:owner/name",
        "../../weights.pt",
        "http://host/x",
        "a/b/c",
        "/",
    ],
)
def test_paths_hub_ids_and_addresses_are_not_taken_from_visitors(engines, name):
    with pytest.raises(atlas.AtlasError, match="cannot be chosen on the page"):
        list(choose_model(engines, "ann", name))
    assert engines.engine_of("ann") is engines.first


def test_a_name_that_open_clip_does_not_know_leaves_the_former_model(engine):
    engines = Engines(engine, name="bundled")
    with pytest.raises(atlas.AtlasError, match="Did you mean 'ViT-B-32'"):
        list(choose_model(engines, "ann", "ViT-B-33/openai"))
    assert engines.engine_of("ann") is engine


def test_the_real_clips_are_offered_behind_the_one_that_was_started_with(engine):
    names = offered_models(Engines(engine, name="ViT-B-16@mine.pt"))
    assert names[:3] == ["ViT-B-16@mine.pt", "bundled", "ViT-B-32/openai"]
    assert set(names[1:]) == set(text.model.NAMES)


def test_who_answers_is_the_present_visitors_engine(engines, visitor):
    asking, current = visitor
    asking[0] = "ann"
    list(choose_model(engines, "ann", ONE))
    assert current.engine() is engines.engine_of("ann")
    assert current.engine() is not engines.first
    assert current.name() == ONE
    asking[0] = None
    assert current.engine() is engines.first
    assert current.name() == "bundled"


def test_a_recipe_for_another_model_is_refused_kindly(engines, few_shot_request, tmp_path):
    list(choose_model(engines, "ann", ONE))
    *_, last = adapt_few_shot(
        engines.engine_of("ann"), few_shot_request, FewShotSettings(method="atlas", steps=2)
    )
    path = save_recipe(last.result.recipe, tmp_path)
    with pytest.raises(atlas.AtlasError, match="Open the one it was made with"):
        load_recipe(engines.engine_of("bob"), path, [])
    brought, _ = load_recipe(engines.engine_of("ann"), path, [])
    assert brought.recipe.classes == last.result.recipe.classes


def test_the_facts_tell_of_a_missing_bank(hub):
    *_, last = library.prepare(hub[ONE].model, cache=False)
    if last.engine.bank_path is not None:  # another test has built it
        last.engine.bank_path = None
    assert describe_model(last.engine, ONE).task_vectors == ()


# At start-up.


def test_atlas_model_and_atlas_bank_choose_at_the_start(hub, monkeypatch):
    *_, last = library.prepare(hub[TWO], cache=False)
    monkeypatch.setenv("ATLAS_MODEL", hub[TWO].model)
    monkeypatch.setenv("ATLAS_BANK", str(last.engine.bank_path))
    opened = open_engine()
    with opened.engine:
        assert (opened.reason, opened.own_bank) == (None, False)
        assert opened.name == "tiny-standin@base.safetensors"
        assert opened.engine.bank.tasks == TASKS


def test_a_bank_that_does_not_fit_leaves_the_bundled_model_with_its_own(hub, monkeypatch):
    *_, last = library.prepare(hub[TWO], cache=False)
    monkeypatch.setenv("ATLAS_BANK", str(last.engine.bank_path))
    opened = open_engine()
    with opened.engine:
        assert "was made for another model" in opened.reason
        assert opened.engine.bank_path != last.engine.bank_path


# Through the server, with two visitors at once.


@pytest.fixture
def address(engines):
    with served(open_engine(), engines) as server:
        yield server.address


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Gradio's own sockets, when it is closed
def test_two_clients_with_two_models_get_their_own_answers(address, engines, squares):
    ann, bob = (Client(address, verbose=False) for _ in range(2))
    samples = [handle_file(path) for path in sorted((squares / "try").rglob("*.png"))[:2]]

    def asked(client):
        rows = client.predict(images=samples, classes="red, green, blue", api_name="/predict")["rows"]
        return [(row["label"], round(row["prob"], 4)) for row in rows]

    before = asked(bob)
    facts = ann.predict(model=ONE, api_name="/choose")
    assert (facts["model"], facts["task_vectors"]) == (ONE, list(TASKS))
    assert ann.predict(api_name="/models")["now"] == ONE
    assert bob.predict(api_name="/models")["now"] == "bundled"
    assert asked(bob) == before
    assert asked(ann) != before
    with pytest.raises(AppError, match="cannot be chosen on the page"):
        ann.predict(model="ViT-B-32@secret.pt", api_name="/choose")
    assert ann.predict(api_name="/models")["now"] == ONE


def test_what_was_forgotten_with_another_model_goes_when_a_visitor_chooses(engines, visitor):
    asking, current = visitor
    list(choose_model(engines, "ann", ONE))
    saved = load_forget(engines.first)
    assert saved is not None
    page = build(OpenedModel(engines.first), engines, session=current.session)
    event = page_events.event_named(page, "on_model", among="forget-shows")

    def after_choice(own, shows):
        values = page_events.values_for(event, {page_events.OWN: own, "forget-shows": shows})
        return event.fn(values)

    assert after_choice(saved, OWN) == UNCHANGED, "the first model is still there"
    asking[0] = "ann"
    for own, shows in ((saved, OWN), (None, EXAMPLE), (None, OWN)):  # the last one has expired
        cleared = page_events.by_name(after_choice(own, shows))
        assert cleared["forget-shows"] == NONE
        assert text.forget.WAITING in cleared["forget-run"]
    assert after_choice(None, NONE) == UNCHANGED
