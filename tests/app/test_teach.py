"""The handler behind the Adapt button, on a small real model with donors."""

from __future__ import annotations

import copy
import threading
from itertools import groupby
from urllib.parse import parse_qsl

import pytest

import atlas_engine as atlas
from app import text
from app.handlers.choices import METHODS, Choices, from_query, to_query
from app.handlers.lesson import ClassRow, FewShotRequest
from app.handlers.teach import teach
from app.limits import LIMITS
from app.state import Runs
from app.tabs.links import link_note


@pytest.fixture(scope="module")
def states(small, lesson):
    return list(teach(small, lesson, Choices(steps=6)))


def test_a_lesson_goes_through_reading_looking_a_preview_and_learning(states):
    assert [phase for phase, _ in groupby(state.phase for state in states)] == [
        "read",
        "look",
        "preview",
        "look",
        "learn",
        "done",
    ]
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_preview_brings_a_comparison_of_the_samples_before_anything_is_learned(states, lesson):
    brought = [state for state in states if state.preview is not None]
    assert [state.phase for state in brought] == ["preview"]
    assert all(len(state.preview) == len(lesson.samples) and state.losses == () for state in brought)


def test_losses_and_estimates_grow_with_the_run(states):
    learned = [state for state in states if state.phase == "learn"]
    assert [len(state.losses) for state in learned] == list(range(1, 7))
    assert {one.method for one in states[-1].estimates} >= {"zero-shot", "text-probe"}
    assert all(one.low <= one.accuracy <= one.high for one in states[-1].estimates)


def test_what_is_kept_holds_the_samples_both_answers_and_the_story(states, lesson):
    kept = states[-1].kept
    assert kept.truth == tuple(sample.truth for sample in lesson.samples)
    assert kept.comparison.adapted.classes == lesson.classes
    assert kept.sentence
    assert not kept.stopped
    assert kept.choices == Choices(steps=6)
    assert copy.deepcopy(kept) is kept


def test_without_samples_there_is_no_comparison_but_a_verdict(small, lesson):
    *_, last = teach(small, FewShotRequest(lesson.rows), Choices(steps=2))
    assert last.kept.comparison is None
    assert last.kept.sentence


def test_the_same_lesson_and_seed_give_the_same_recipe(small, lesson, states):
    *_, again = teach(small, lesson, Choices(steps=6))
    assert again.kept.recipe == states[-1].kept.recipe


def test_a_run_that_is_stopped_keeps_the_best_so_far(small, lesson):
    runs, seen = Runs(), 0
    with runs.sign("visitor") as sign:
        for state in teach(small, lesson, Choices(steps=LIMITS.steps), sign=sign):
            if state.phase == "learn":
                seen += 1
                assert not runs.stop("another visitor")
                assert runs.stop("visitor")
    assert seen == 1
    assert state.kept.stopped
    assert state.kept.comparison is not None
    assert not runs.stop("visitor"), "a finished run is still held"


def test_a_run_that_takes_too_long_keeps_the_best_so_far(small, lesson):
    *_, last = teach(small, lesson, Choices(steps=LIMITS.steps), most_seconds=0)
    assert last.kept.stopped
    assert len(last.losses) < LIMITS.steps


def test_a_run_that_is_stopped_while_it_reads_learns_nothing_and_says_so(small, lesson):
    runs = Runs()
    with runs.sign("visitor") as sign:
        states = teach(small, lesson, sign=sign)
        assert next(states).phase == "read"
        assert runs.stop("visitor")
        with pytest.raises(atlas.AtlasError, match=text.STOPPED_EARLY):
            next(states)


@pytest.mark.parametrize("phase", ["look", "preview"])
def test_a_run_that_is_stopped_before_its_first_step_keeps_zero_shot_or_a_head(small, lesson, phase):
    runs, learned = Runs(), 0
    with runs.sign("visitor") as sign:
        for state in teach(small, lesson, Choices(steps=LIMITS.steps), sign=sign):
            learned += state.phase == "learn"
            if state.phase == phase:
                assert runs.stop("visitor")
    assert learned <= 1
    assert state.kept.stopped


def test_nobody_can_stop_what_has_no_session():
    runs = Runs()
    with runs.sign(None) as sign:
        assert not runs.stop(None)
        assert not sign.is_up


@pytest.mark.parametrize("name", ["cat", "Cat"])
def test_two_classes_of_one_name_are_refused(small, lesson, name):
    rows = (ClassRow("cat", lesson.rows[0].paths), ClassRow(name, lesson.rows[1].paths))
    with pytest.raises(atlas.AtlasError, match="twice"):
        list(teach(small, FewShotRequest(rows)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_the_page_is_known_to_the_engine(small, lesson, method):
    *_, last = teach(small, FewShotRequest(lesson.rows), Choices(method=method, steps=1))
    assert last.kept.recipe.classes == lesson.classes


def test_visitors_side_by_side_get_what_they_would_get_alone(small, lesson, states):
    results = {}

    def visit(number):
        *_, last = teach(small, lesson, Choices(steps=6))
        results[number] = last.kept.recipe

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1] == states[-1].kept.recipe


def test_a_link_carries_names_and_settings_and_nothing_else():
    chosen = Choices(method="atlas", steps=80, lr=0.1, seed=7)
    query = to_query(["otter", "a & b", "<i>"], chosen)
    pairs = [tuple(part.split("=", 1)) for part in query[1:].split("&")]
    assert {key for key, _ in pairs} == {"class", "method", "steps", "lr", "seed"}
    assert from_query(parse_qsl(query[1:])) == (("otter", "a & b", "<i>"), chosen)


@pytest.mark.parametrize(
    "pairs",
    [
        [("method", "rm -rf"), ("steps", "1e9"), ("lr", "nan"), ("seed", "-1")],
        [("steps", "many"), ("lr", ""), ("seed", "inf")],
        [],
    ],
)
def test_a_link_with_nonsense_gives_the_defaults(pairs):
    assert from_query(pairs) == ((), Choices())


def test_a_link_names_the_model_where_it_is_not_the_usual_and_its_reader_is_told():
    query = to_query(["otter", "seal"], Choices(), model="ViT-B-32/openai")
    pairs = parse_qsl(query[1:])
    assert from_query(pairs) == (("otter", "seal"), Choices())
    said = link_note(pairs, "bundled")
    assert "made with the model ViT-B-32/openai, and bundled answers you now" in said
    assert link_note(pairs, "ViT-B-32/openai") == link_note(parse_qsl("class=a"), "bundled") == ""
    assert link_note([("model", "<script>"), ("class", "a")], "bundled") == ""


def test_a_link_names_no_more_classes_than_the_page_has_rows():
    names, _ = from_query([("class", "x" * 500)] * 50)
    assert len(names) == LIMITS.rows
    assert max(map(len, names)) <= 100
