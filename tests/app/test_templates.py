"""The sentences for class names on the page, and its slow methods, on a small model with task vectors."""

from __future__ import annotations

import dataclasses
from urllib.parse import parse_qsl

import gradio as gr
import pytest

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.settings import (
    METHODS,
    OBJECTIVES,
    FewShotSettings,
    UnlabelledSettings,
    check_sentences,
    few_shot_from_query,
    read_templates,
    to_query,
    unlabelled_from_query,
)
from app.handlers.takeaway import load_recipe, python_code, shell_commands
from app.handlers.unlabelled import UnlabelledRequest, adapt_unlabelled
from app.handlers.uploads import UploadedImage
from app.limits import LIMITS
from app.tabs.teach import FewShotSettingsForm
from app.views import render_verdict

TWO = "a {}?\nmy {}."
CHOSEN = FewShotSettings(method="atlas", steps=1, templates=TWO)


@pytest.fixture(scope="module")
def unlabelled_request(few_shot_request):
    files = tuple(UploadedImage(path) for row in few_shot_request.rows for path in row.paths)
    return UnlabelledRequest(files, few_shot_request.classes)


@pytest.fixture(scope="module")
def learned(small, few_shot_request):
    *_, last = adapt_few_shot(small, few_shot_request, CHOSEN)
    return last.result


# ---- sentences


def test_both_tabs_learn_under_the_sentences_and_show_zero_shot_under_them(
    small, learned, few_shot_request, unlabelled_request
):
    assert learned.recipe.templates == ("a {}?", "my {}.")
    images = [sample.image for sample in learned.samples]
    under = small.predict(images, few_shot_request.classes, templates=TWO)
    assert learned.comparison.zero_shot.labels == under.labels
    assert learned.comparison.zero_shot.top(1)[0][0].prob == pytest.approx(under.top(1)[0][0].prob, abs=1e-4)
    *_, last = adapt_unlabelled(small, unlabelled_request, UnlabelledSettings("anchored", 0, "photo"))
    assert last.result.recipe.templates == ("a photo of a {}.",)


def test_without_a_choice_nothing_is_recorded(small, few_shot_request):
    usual = dataclasses.replace(CHOSEN, templates="")
    *_, last = adapt_few_shot(small, FewShotRequest(few_shot_request.rows), usual)
    assert "templates" not in last.result.recipe.config


@pytest.mark.parametrize(
    ("templates", "words"),
    [("carz", "Did you mean 'cars'"), ("a photo", "a sentence with {} where the class name goes")],
)
def test_what_is_no_template_is_refused_before_any_image_is_read(
    small, few_shot_request, unlabelled_request, templates, words
):
    with pytest.raises(atlas.AtlasError, match=words):
        next(adapt_few_shot(small, few_shot_request, FewShotSettings(templates=templates)))
    with pytest.raises(atlas.AtlasError, match=words):
        next(adapt_unlabelled(small, unlabelled_request, UnlabelledSettings(templates=templates)))


def test_more_sentences_than_the_page_reads_are_refused_in_a_form_and_in_a_recipe(small, learned, tmp_path):
    names = tuple(f"thing {number}" for number in range(LIMITS.classes))
    sentences = [f"{number} {{}}" for number in range(LIMITS.sentences // len(names) + 1)]
    words = text.page.many_sentences(len(names), len(sentences))
    with pytest.raises(atlas.AtlasError) as caught:
        check_sentences(names, "\n".join(sentences))
    assert str(caught.value) == words
    check_sentences(names, sentences[1:])
    config = {**learned.recipe.config, "templates": sentences}
    dataclasses.replace(learned.recipe, classes=names, config=config).save(tmp_path / "r.st")
    with pytest.raises(atlas.AtlasError, match="sentences each"):
        load_recipe(small, str(tmp_path / "r.st"), [])


@pytest.mark.parametrize("settings", [CHOSEN, UnlabelledSettings("entropy", 3, "eurosat")])
def test_a_link_carries_the_sentences_and_drops_what_is_none(settings):
    read = few_shot_from_query if isinstance(settings, FewShotSettings) else unlabelled_from_query
    assert read(parse_qsl(to_query(["otter"], settings)[1:])) == (("otter",), settings)
    assert read([("templates", "no such set")])[1].templates == ""
    assert read([("templates", "{}" * 5000)])[1].templates == ""


def test_the_lines_to_copy_name_the_sentences(learned, unlabelled_request):
    assert f"templates={TWO!r}, seed=0" in python_code(learned)
    assert "--templates 'a {}?' --templates 'my {}.'" in shell_commands(learned)
    without = dataclasses.replace(learned, settings=UnlabelledSettings("entropy", 0, "eurosat"))
    assert "templates='eurosat', seed=0" in python_code(without)
    assert " --templates eurosat" in shell_commands(without)
    usual = dataclasses.replace(learned, settings=FewShotSettings())
    assert "templates" not in python_code(usual) + shell_commands(usual)


def test_the_box_offers_every_set_and_takes_what_is_typed():
    with gr.Blocks():
        form = FewShotSettingsForm.create()
    offered = [value for _, value in form.templates.choices]
    assert offered == [text.page.OWN_TEMPLATES, *atlas.list_templates()]
    assert form.templates.allow_custom_value
    values = {form.method: "auto", form.steps: 3, form.lr: None, form.seed: 0}
    for shown, wanted in ((text.page.OWN_TEMPLATES, ""), (None, ""), (" my {}. ", "my {}."), ("dtd", "dtd")):
        settings = form.read({**values, form.templates: shown})
        assert settings.templates == wanted == read_templates(shown)
    assert form.fill(FewShotSettings())[form.templates] == text.page.OWN_TEMPLATES
    assert form.fill(CHOSEN)[form.templates] == TWO


# ---- the methods as published


def test_the_methods_as_published_are_on_the_page_and_called_slow():
    assert {"paper", "paper+tip", "paper+lpp"} <= set(METHODS)
    assert "paper" in OBJECTIVES
    named = [*text.teach.METHOD_NAMES.items(), *text.unlabelled.METHOD_NAMES.items()]
    assert all("(slow)" in title for name, title in named if name.startswith("paper"))


def test_a_slow_method_ends_at_the_deadline_with_the_best_so_far_and_says_so(
    small, few_shot_request, unlabelled_request
):
    settings = FewShotSettings(method="paper")
    taught = list(adapt_few_shot(small, few_shot_request, settings, most_seconds=0.2))
    rolled = list(adapt_unlabelled(small, unlabelled_request, UnlabelledSettings("paper"), most_seconds=0.2))
    for states in (taught, rolled):
        learning = [state for state in states if state.phase == "learn"]
        assert {state.of for state in learning} == {100}, "ten epochs of ten batches"
        assert 0 < len(learning) < 100
        assert all(state.seconds_left <= 0.2 for state in learning), "no more than the page gives"
        result = states[-1].result
        assert result.stopped
        assert result.recipe.coefficients.values.any(), "what was learned until then is kept"
        assert text.result.STOPPED_NOTE in render_verdict(result)
