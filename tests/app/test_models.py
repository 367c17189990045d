"""Choosing a model: for oneself alone, checked, built once; a refusal leaves everything as it was."""

from __future__ import annotations

from dataclasses import replace

import gradio as gr
import pytest
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import atlas_engine as atlas
from app import model_text as text
from app.engines import Engines
from app.examples import LESSONS
from app.handlers.choices import Choices
from app.handlers.models import choose, facts_of, offered
from app.handlers.takeaway import load_recipe, save_recipe
from app.handlers.teach import teach
from app.limits import LIMITS
from app.model import open_engine
from app.page import build, launch
from app.prepared_examples import load_forgotten, load_worked
from app.state import Runs, SavedResult
from app.tabs import models
from app.tabs.forget import ForgetSide
from app.tabs.holding import EXAMPLE, NOTHING, OWN, hold
from app.tabs.result import result_side
from app.tabs.teach import _adapting
from atlas_engine import library
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
        engine, name="bundled", prepare=lambda name: library.prepare(hub[name], cache=False), room=1
    )


def test_a_visitor_chooses_for_themselves_alone(engines):
    *steps, last = choose(engines, "ann", ONE)
    assert steps[0].doing == text.OPENING
    assert last.done
    assert engines.name_of("ann") == ONE
    assert engines.of("ann").bank.tasks == TASKS
    assert engines.name_of("bob") == "bundled"
    assert engines.of("bob") is engines.first
    assert engines.of(None) is engines.first


def test_a_choice_that_is_stopped_leaves_the_former_model(engines):
    runs = Runs()
    with runs.sign("ann") as sign:
        steps = choose(engines, "ann", ONE, sign=sign)
        assert next(steps).doing == text.OPENING
        runs.stop("ann")
        last = next(steps)
    assert (last.doing, last.done) == (text.STOPPED, True)
    assert engines.of("ann") is engines.first


def test_a_model_that_is_open_is_not_opened_again(engines):
    list(choose(engines, "ann", ONE))
    list(choose(engines, "bob", ONE))
    assert engines.of("bob") is engines.of("ann")
    list(choose(engines, "ann", "bundled"))
    assert engines.of("ann") is engines.first


def test_the_bank_is_built_with_progress_the_first_time_only(engine, tmp_path, monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    offer = stand_in(tmp_path / "hub", seed=2)
    for wanted in (["cars", "signs", "textures"], []):
        fresh = Engines(engine, name="bundled", prepare=lambda _: library.prepare(offer, cache=False))
        told = [step.doing for step in choose(fresh, "ann", ONE)]
        assert [line.rpartition("now ")[2].rstrip(" …") for line in told if ", now" in line] == wanted


def test_the_model_used_least_recently_makes_room_and_its_visitor_is_asked_to_choose_again(engines):
    list(choose(engines, "ann", ONE))
    held = engines.of("ann")
    list(choose(engines, "bob", TWO))
    with pytest.raises(atlas.AtlasError, match=r"was put away to make room .* Choose it again"):
        engines.of("ann")
    assert held.bank.tasks == TASKS  # whoever is in the middle of an answer finishes it
    list(choose(engines, "ann", ONE))
    assert engines.of("ann").bank.tasks == TASKS


def test_a_run_that_has_begun_goes_on_with_its_model_whatever_is_chosen_meanwhile(engines, lesson):
    answering = engines.answering(lambda: "ann")
    list(choose(engines, "ann", ONE))
    begun_with = engines.of("ann").fingerprint
    spare = LIMITS.rows - len(lesson.rows)
    names = [*(row.name for row in lesson.rows), *[""] * spare]
    pictures = [*([(path, None) for path in row.paths] for row in lesson.rows), *[None] * spare]
    held = hold(None, name="shows", expired="gone")
    frames = _adapting(answering, Runs(), held)(
        gr.Request(session_hash="ann"), None, EXAMPLE, None, "text-probe", 1, 0.1, 0, *names, *pictures
    )
    next(frames)
    list(choose(engines, "bob", TWO))  # for which the model of the run has to make room
    with pytest.raises(atlas.AtlasError, match="was put away"):
        answering()
    *_, last = frames
    (kept,) = [value for value in last if isinstance(value, SavedResult)]
    assert kept.recipe.model_fingerprint == begun_with


def test_a_model_that_was_put_away_is_told_of_in_every_part_of_the_page(engines, engine):
    asking = ["ann"]
    list(choose(engines, "ann", ONE))
    list(choose(engines, "bob", TWO))
    kept = load_worked(engine, LESSONS[0])
    with gr.Blocks() as page:
        asking[0] = None  # as where a page is laid out
        side = result_side(engines.answering(lambda: asking[0]), kept, bundled=True)
    asking[0] = "ann"
    assert "was put away" in str(side._panels(kept, OWN))
    values = {"on_map": ("mixed", "layer", ""), "on_turn": (*[0.5] * LIMITS.turned, "", 1.0, "", 1.0)}
    for event in page.fns.values():
        name = getattr(event.fn, "__name__", "")
        if name in {"on_bank", "on_map", "on_turn", "on_make"}:
            holds = () if name == "on_bank" else (kept, OWN)
            assert "was put away" in str(event.fn(*holds, *values.get(name, ()))), name


def test_who_departs_ends_their_own_build_and_keeps_what_was_chosen(engines):
    page = build(open_engine(), engines)
    departs = [one.fn for one in page.fns.values() if getattr(one.fn, "__name__", "") == "on_depart"]
    on_choose = next(one.fn for one in page.fns.values() if getattr(one.fn, "__name__", "") == "on_choose")
    request = gr.Request(session_hash="ann")
    list(on_choose(request, ONE))
    assert engines.name_of("ann") == ONE
    frames = on_choose(request, TWO)
    next(frames)
    for depart in departs:
        depart(gr.Request(session_hash="bob"))
        depart(request)
    *_, last = frames
    assert text.STOPPED in str(last)
    assert engines.name_of("ann") == ONE, "the former choice is lost"


def test_a_choice_is_remembered_until_very_many_others_have_chosen(engines, monkeypatch):
    monkeypatch.setattr("app.engines.LIMITS", replace(LIMITS, choices=3))
    for name in ("ann", "bob", "cyd"):
        engines.choose(name, ONE, engines.first)
    engines.of("ann")  # who uses it keeps it
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
        list(choose(engines, "ann", name))
    assert engines.of("ann") is engines.first


def test_a_name_that_open_clip_does_not_know_leaves_the_former_model(engine):
    engines = Engines(engine, name="bundled")
    with pytest.raises(atlas.AtlasError, match="Did you mean 'ViT-B-32'"):
        list(choose(engines, "ann", "ViT-B-33/openai"))
    assert engines.of("ann") is engine


def test_the_real_clips_are_offered_behind_the_one_that_was_started_with(engine):
    names = offered(Engines(engine, name="ViT-B-16@mine.pt"))
    assert names[:3] == ["ViT-B-16@mine.pt", "bundled", "ViT-B-32/openai"]
    assert set(names[1:]) == set(text.OFFERED)


def test_who_answers_is_the_present_visitors_engine(engines):
    now = ["ann"]
    answering = engines.answering(lambda: now[0])
    list(choose(engines, "ann", ONE))
    assert answering() is engines.of("ann")
    assert answering() is not engines.first
    now[0] = None
    assert answering() is engines.first


def test_a_recipe_for_another_model_is_refused_kindly(engines, lesson, tmp_path):
    list(choose(engines, "ann", ONE))
    *_, last = teach(engines.of("ann"), lesson, Choices(method="atlas", steps=2))
    path = save_recipe(last.kept.recipe, tmp_path)
    with pytest.raises(atlas.AtlasError, match="Open the one it was made with"):
        load_recipe(engines.of("bob"), path, [])
    brought, _ = load_recipe(engines.of("ann"), path, [])
    assert brought.recipe.classes == last.kept.recipe.classes


def test_the_facts_tell_of_a_missing_bank(hub):
    *_, last = library.prepare(hub[ONE].model, cache=False)
    if last.engine.bank_path is not None:  # another test has built it
        last.engine.bank_path = None
    assert facts_of(last.engine, ONE).donors == ()


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
    page = build(open_engine(), engines)
    yield launch(page, host="127.0.0.1")
    page.close(verbose=False)


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
    assert (facts["model"], facts["donors"]) == (ONE, list(TASKS))
    assert ann.predict(api_name="/models")["now"] == ONE
    assert bob.predict(api_name="/models")["now"] == "bundled"
    assert asked(bob) == before
    assert asked(ann) != before
    with pytest.raises(AppError, match="cannot be chosen on the page"):
        ann.predict(model="ViT-B-32@secret.pt", api_name="/choose")
    assert ann.predict(api_name="/models")["now"] == ONE


def test_what_was_forgotten_with_another_model_goes_when_a_visitor_chooses(engines, monkeypatch):
    list(choose(engines, "ann", ONE))
    kept = load_forgotten(engines.first)
    assert kept is not None
    held = hold(kept, name="shows", expired="gone")
    side = ForgetSide(held, [], [], lambda *_: [])
    renewed = models._renewing(engines, side)
    assert renewed(kept, OWN) != side.empty, "the first model is still there"
    monkeypatch.setattr(models, "visitor", lambda: "ann")
    assert renewed(kept, OWN) == side.empty
    assert renewed(None, EXAMPLE) == side.empty
    assert renewed(None, NOTHING) != side.empty
    assert renewed(None, OWN) == side.empty, "it has expired, and cannot be told to fit"
