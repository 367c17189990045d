"""Trying what was taught: images are answered at once, and corrected, on a small model with task vectors."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import atlas_engine as atlas
from app import text
from app.handlers.live import LiveAnswer, LiveLane, decode_frame
from app.handlers.trying import add_to_class, answered_by, correct_label, try_images
from app.handlers.uploads import ClassRow, UploadedImage
from app.limits import LIMITS
from app.predictors import Predictors
from app.session import StopSignal


@pytest.fixture(scope="module")
def files(squares):
    return [UploadedImage(str(path)) for path in sorted((squares / "try").rglob("*.png"))]


def tried(small, saved, files, **how):
    *_, last = try_images(small, Predictors(), saved, files, **how)
    return last


def frame_of(path):
    return f"data:image/png;base64,{base64.b64encode(Path(path).read_bytes()).decode()}"


# ---- answering


def test_images_are_answered_as_the_engine_answers_them(small, saved, files):
    bare = replace(saved, samples=(), comparison=None)
    result = tried(small, bare, files).result
    wanted = small.compare([file.path for file in files], saved.recipe)
    assert torch.allclose(result.comparison.adapted.probs, wanted.adapted.probs, atol=1e-5)
    assert torch.allclose(result.comparison.zero_shot.probs, wanted.zero_shot.probs, atol=1e-5)


def test_one_more_image_costs_one_more_answer_and_one_less_goes(small, saved, files):
    predictors, asked = Predictors(), []

    class Counting(Predictors):
        def compare(self, engine, recipe, images):
            asked.append(len(images))
            return predictors.compare(engine, recipe, images)

    bare = replace(saved, samples=(), comparison=None)
    *_, first = try_images(small, Counting(), bare, files[:3])
    *_, second = try_images(small, Counting(), first.result, files[:4])
    assert asked == [3, 1]
    assert second.fresh == (files[3].path,)
    *_, third = try_images(small, Counting(), second.result, files[1:3])
    assert asked == [3, 1]
    assert [sample.path for sample in third.result.samples] == [file.path for file in files[1:3]]
    whole = small.compare([file.path for file in files[1:3]], saved.recipe)
    assert third.result.comparison.adapted.labels == whole.adapted.labels


def test_images_that_were_adapted_to_stay_whatever_is_tried(small, saved, files):
    first = tried(small, replace(saved, samples=(), comparison=None), files[:2]).result
    pinned = replace(first, pinned=frozenset([files[0].path]))
    last = tried(small, pinned, [files[2]])
    assert [sample.path for sample in last.result.samples] == [files[0].path, files[2].path]
    assert last.fresh == (files[2].path,)
    assert [sample.path for sample in tried(small, pinned, []).result.samples] == [files[0].path]


def test_an_image_that_cannot_be_read_is_left_out_and_too_many_are_refused(small, saved, files, tmp_path):
    (tmp_path / "words.png").write_text("only words")
    last = tried(small, saved, [UploadedImage(str(tmp_path / "words.png")), files[0]])
    assert last.left_out[0].startswith("words.png:")
    assert len(last.result.samples) == 1
    with pytest.raises(atlas.AtlasError, match=str(LIMITS.samples)):
        tried(small, saved, files[:1] * (LIMITS.samples + 1))


def test_answers_come_a_few_at_a_time_and_can_be_stopped(small, saved, draw):
    paths = [UploadedImage(draw(f"{number}.png")) for number in range(LIMITS.images_per_step + 1)]
    signal = StopSignal()
    states = []
    for state in try_images(small, Predictors(), saved, paths, stop_signal=signal):
        states.append(state)
        if len(state.result.samples) == LIMITS.images_per_step:
            signal.set()
    assert states[0].seen == 0
    assert states[-1].stopped
    assert len(states[-1].result.samples) == LIMITS.images_per_step


def test_a_result_answers_under_its_own_names_and_under_no_others(saved):
    classes = saved.recipe.classes
    assert answered_by(saved, ()) is saved
    assert answered_by(saved, [name.upper() for name in reversed(classes)]) is saved
    assert answered_by(saved, [*classes, "teal"]) is None
    assert answered_by(None, classes) is None


# ---- correcting


def test_a_correction_gives_the_image_its_class_and_puts_it_into_one_class_only(small, saved, files):
    result = tried(small, saved, files[:2]).result
    path = files[0].path
    corrected = correct_label(result, path, "red")
    assert corrected.samples[0].label == "red"
    rows = (ClassRow("red", ("a.png",)), ClassRow("blue", ("b.png", path)), ClassRow("", ()))
    filled = add_to_class(rows, ("blue", "green", "red"), path, "red")
    assert filled == [ClassRow("red", ("a.png", path)), ClassRow("blue", ("b.png",)), ClassRow("green", ())]
    assert add_to_class(filled, ("red",), path, "red")[0].paths == ("a.png", path), "twice is once"


def test_a_correction_to_a_strange_class_or_of_a_strange_image_is_refused(saved):
    with pytest.raises(atlas.AtlasError, match="none of the classes"):
        correct_label(saved, saved.samples[0].path, "unicorn")
    with pytest.raises(atlas.AtlasError, match="no longer among"):
        correct_label(saved, "/etc/passwd", "red")


# ---- models that are kept ready


def test_a_model_is_built_once_and_the_one_used_least_recently_goes(small, saved):
    clock = [0.0]
    predictors = Predictors(max_kept=2, keep_seconds=10, clock=lambda: clock[0])
    recipes = [replace(saved.recipe, seed=seed) for seed in range(3)]
    images = [saved.samples[0].image]
    for recipe in recipes:
        predictors.compare(small, recipe, images)
        predictors.compare(small, recipe, images)
    assert len(predictors) == 2
    clock[0] = 11.0
    predictors.compare(small, recipes[0], images)
    assert len(predictors) == 1, "a recipe holds a visitor's words, and is kept no longer than a result"


# ---- live


def test_a_frame_is_answered_before_and_now_or_by_words_alone(small, saved, files):
    lane, predictors, frame = LiveLane(), Predictors(), frame_of(files[0].path)
    answer = lane.answer(small, predictors, saved, (), frame)
    wanted = small.compare([files[0].path], saved.recipe)
    assert answer.now[0][0] == wanted.adapted.labels[0]
    assert answer.before[0][0] == wanted.zero_shot.labels[0]
    asked = lane.answer(small, predictors, saved, ("teal", "pink"), frame)
    assert {name for name, _ in asked.before} == {"teal", "pink"}
    assert asked.now == ()
    assert lane.answer(small, predictors, None, (), frame) == LiveAnswer(note=text.camera.NOTHING_TAUGHT)


def test_a_frame_that_finds_the_lane_full_is_dropped_at_once(small, saved, files):
    lane = LiveLane(at_once=1, wait_seconds=0.01)
    frame = frame_of(files[0].path)
    assert lane._room.acquire(timeout=1)
    assert lane.answer(small, Predictors(), saved, (), frame) == LiveAnswer(note=text.camera.BUSY)
    lane._room.release()
    assert lane.answer(small, Predictors(), saved, (), frame).now


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "http://host/cat.jpg",
        "data:text/html;base64,AAAA",
        "data:image/jpeg;base64,not base64!",
        "data:image/jpeg;base64," + "A" * LIMITS.frame_bytes,
    ],
)
def test_what_is_no_frame_is_refused(frame):
    with pytest.raises(atlas.AtlasError, match="could not be read"):
        decode_frame(frame)
