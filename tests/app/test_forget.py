"""Forgetting: the handler behind the tab, on a small model with task vectors; its cards; and its endpoint."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from itertools import groupby

import pytest
import torch
from gradio_client import Client, handle_file
from gradio_client.exceptions import AppError

import atlas_engine as atlas
from app import text
from app.examples import FORGET_EXAMPLE
from app.handlers.forget import STRENGTHS, ForgetRequest, compare_at, forget, group_by_class, shell_command
from app.handlers.takeaway import save_recipe
from app.handlers.uploads import UploadedImage
from app.prepared_examples import load_forget, make_forget
from app.session import Runs
from app.views import render_forget_images, render_forget_numbers, render_forget_verdict
from atlas_engine.cli import main as atlas_command

FINE, COARSE = ("red", "blue"), ("dark green", "red")


@pytest.fixture(scope="module")
def sides(few_shot_request):
    """Two colours to forget, and two to keep."""
    rows = {row.name: row for row in few_shot_request.rows}
    return tuple(rows[name] for name in FINE), tuple(rows[name] for name in COARSE)


@pytest.fixture(scope="module")
def forget_request(sides):
    return ForgetRequest.of(*sides, keep=0.5, seed=0)


@pytest.fixture(scope="module")
def states(small, forget_request):
    return list(forget(small, forget_request))


@pytest.fixture(scope="module")
def forget_result(states):
    return states[-1].result


def test_it_reads_searches_learns_and_measures_and_the_share_never_falls(states):
    phases = [phase for phase, _ in groupby(state.run.phase for state in states)]
    assert phases[0] == "read"
    assert phases[-2:] == ["measure", "done"]
    assert {"encode", "search", "learn"} <= set(phases)
    shares = [state.run.share for state in states if state.run.phase != "read"]
    assert shares == sorted(shares)


def test_the_slider_begins_at_zero_shot_and_ends_at_the_recipe(small, forget_result, forget_request):
    assert [one.scale for one in forget_result.curve] == list(STRENGTHS)
    told = small.predict([one.image for one in forget_result.target], forget_request.target.classes)
    right = [label == one.label for label, one in zip(told.labels, forget_result.target, strict=True)]
    assert forget_result.curve[0].target == pytest.approx(sum(right) / len(right))
    config = forget_result.recipe.config
    assert config["control_after"] >= 0.5 * config["control_before"]


def test_the_pictures_at_no_strength_are_as_they_were_and_stay_among_their_own_classes(small, forget_result):
    for side, names in zip(compare_at(small, forget_result, 0.0), (FINE, COARSE), strict=True):
        before, after = side.comparison.zero_shot, side.comparison.adapted
        assert set(after.classes) == set(names)
        assert torch.allclose(after.probs, before.probs, atol=1e-5)
        assert torch.allclose(after.probs.sum(dim=1), torch.ones(len(side.images)))
        assert {one.label for one in side.images} == set(names)


def test_at_full_strength_the_pictures_are_answered_by_the_recipe(small, forget_result):
    target, _ = compare_at(small, forget_result, 1.0)
    whole = small.compare([one.image for one in target.images], forget_result.recipe).adapted
    adapted = target.comparison.adapted
    among = whole.probs[:, [whole.classes.index(name) for name in adapted.classes]]
    assert torch.equal(adapted.probs.argmax(dim=1), among.argmax(dim=1))


def test_the_session_holds_the_pictures_as_small_as_the_model_sees_them(small, forget_result):
    size = small.backbone.preprocessing.size
    assert {one.image.pixels.shape for one in (*forget_result.target, *forget_result.control)} == {
        (size, size, 3)
    }


def test_the_command_makes_the_same_recipe_of_the_same_folders(small, forget_result, sides, capsys):
    told = shell_command(forget_result, "a.atlas.safetensors").split()
    assert told[:3] == ["atlas", "adapt", "negate"]
    assert told[told.index("--keep") + 1] == "0.5"
    assert atlas_command(["adapt", "negate", "--help"]) == 0
    helped = capsys.readouterr().out
    assert all(flag in helped for flag in told if flag.startswith("-"))
    target, control = (_support(rows) for rows in sides)
    again = small.negate(target, control, keep=0.5).result()
    assert again.recipe == forget_result.recipe


def test_a_run_that_is_stopped_keeps_what_it_has(small, forget_request):
    runs, stopped = Runs(), False
    with runs.begin("visitor") as stop_signal:
        for state in forget(small, forget_request, stop_signal=stop_signal):
            if state.run.phase == "learn" and not stopped:
                stopped = runs.stop("visitor")
    assert stopped
    assert state.result.stopped
    assert [one.scale for one in state.result.curve] == [0.0, 1.0], "who stops does not wait for all of it"


def test_the_numbers_follow_the_slider_and_are_there_as_a_table(forget_result):
    curve = tuple(atlas.ForgettingPoint(scale, 0.8 - 0.5 * scale, 0.9 - 0.1 * scale) for scale in STRENGTHS)
    html = render_forget_numbers(replace(forget_result, curve=curve), 0.5)
    assert "80% → 55%" in html
    assert "90% → 85%" in html
    assert html.count("<tr>") == 1 + len(STRENGTHS)
    assert "80% → 30%" in render_forget_numbers(replace(forget_result, curve=curve), 1.0)


def test_names_from_outside_are_escaped_on_the_cards(small, forget_result):
    evil = replace(forget_result, sentence="<b>x</b>")
    assert "<b>" not in render_forget_verdict(evil)
    target, control = compare_at(small, forget_result, 1.0)
    renamed = tuple(replace(one, label="<i>y</i>") for one in target.images)
    assert "<i>y" not in render_forget_images(replace(target, images=renamed), control)


def test_what_cannot_be_forgotten_gets_a_sentence_that_names_the_side(sides, tmp_path):
    with pytest.raises(atlas.AtlasError, match=r"1\. What to forget .*: there is no image"):
        ForgetRequest.of((), sides[1], keep=0.9, seed=0)
    with pytest.raises(atlas.AtlasError, match=r"2\. What to keep .*: There is one class"):
        ForgetRequest.of(sides[0], sides[1][:1], keep=0.9, seed=0)
    with pytest.raises(atlas.AtlasError, match=r"^cat\.jpg has no class"):
        group_by_class([UploadedImage(str(tmp_path / "cat.jpg"))])


def test_a_picture_that_cannot_be_read_is_left_out_by_name(small, sides, tmp_path):
    (tmp_path / "words.jpg").write_text("only words")
    first = replace(sides[0][0], paths=(*sides[0][0].paths, str(tmp_path / "words.jpg")))
    *_, last = forget(small, ForgetRequest.of((first, sides[0][1]), sides[1], keep=0.5, seed=0))
    assert last.run.left_out[0].startswith("words.jpg:")


def test_the_worked_example_is_shown_with_the_bundled_model_and_no_other(engine, small):
    saved = load_forget(engine)
    assert [one.scale for one in saved.curve] == list(STRENGTHS)
    assert saved.curve[-1].target < saved.curve[0].target
    assert saved.curve[-1].control >= saved.keep * saved.curve[0].control
    assert {one.label for one in saved.control} == set(text.forget.EXAMPLE_KEEPS)
    assert load_forget(small) is None


def test_a_worked_example_is_made_and_loaded_again(small, sides, tmp_path):
    class Example:
        class Fine:
            path = tmp_path

        fine = Fine
        target, control = sides

    made = make_forget(small, Example, tmp_path)
    loaded = load_forget(small, Example)
    assert loaded.recipe == made.recipe
    assert (loaded.sentence, loaded.helped) == (made.sentence, made.helped)
    assert [one.path for one in loaded.target] == [one.path for one in made.target]


def test_the_example_forgets_the_fine_classes_and_keeps_the_coarse_ones():
    forget_request = ForgetRequest.of(FORGET_EXAMPLE.target, FORGET_EXAMPLE.control, keep=0.9, seed=0)
    assert len(forget_request.target.classes) == 5
    assert forget_request.control.classes == text.forget.EXAMPLE_KEEPS
    assert {len(row.paths) for row in forget_request.control.rows} == {FORGET_EXAMPLE.images_each}


def test_a_program_forgets_and_gets_the_strengths_and_the_recipe(server, sides, tmp_path):
    client = Client(server.address, verbose=False)
    zips = []
    for name, rows in zip(("target", "control"), sides, strict=True):
        zips.append(tmp_path / f"{name}.zip")
        with zipfile.ZipFile(zips[-1], "w") as packed:
            for row in rows:
                for place, path in enumerate(row.paths):
                    packed.write(path, f"{row.name}/{place}.png")
    job = client.submit(target=handle_file(zips[0]), control=handle_file(zips[1]), api_name="/forget")
    told = []
    for facts, _ in job:
        told.append(facts.get("phase"))
        if told[-1] == "search":
            client.predict(api_name="/stop")
    result, recipe = job.result()
    assert told[0] == "read"
    assert [one["strength"] for one in result["strengths"]] == [0.0, 1.0], "it was stopped"
    assert result["verdict"]
    assert recipe.endswith(".safetensors")
    (tmp_path / "no.zip").write_text("only words")
    with pytest.raises(AppError, match=r"no\.zip"):
        client.predict(
            target=handle_file(tmp_path / "no.zip"), control=handle_file(zips[1]), api_name="/forget"
        )


def test_the_recipe_can_be_taken_away(forget_result, tmp_path):
    assert atlas.Recipe.load(save_recipe(forget_result.recipe, tmp_path)) == forget_result.recipe


def _support(rows):
    named = sorted(rows, key=lambda row: atlas.natural_key(row.name))
    pictures = [
        (label, atlas.read_image(path)) for label, row in enumerate(named) for path in sorted(row.paths)
    ]
    return atlas.Support(
        tuple(picture for _, picture in pictures),
        tuple(label for label, _ in pictures),
        tuple(row.name for row in named),
    )
