"""The handler behind the Adapt button, on a small real model with task vectors."""

from __future__ import annotations

import copy
import threading
from itertools import groupby
from urllib.parse import parse_qsl

import pytest

import atlas_engine as atlas
from app import text
from app.handlers.few_shot import FewShotRequest, adapt_few_shot
from app.handlers.settings import METHODS, FewShotSettings, few_shot_from_query, model_mismatch, to_query
from app.handlers.uploads import ClassRow
from app.limits import LIMITS
from app.session import Runs


@pytest.fixture(scope="module")
def states(small, few_shot_request):
    return list(adapt_few_shot(small, few_shot_request, FewShotSettings(steps=6)))


def test_a_lesson_goes_through_reading_looking_a_preview_and_learning(states):
    assert [phase for phase, _ in groupby(state.phase for state in states)] == [
        "read",
        "encode",
        "preview",
        "encode",
        "learn",
        "done",
    ]
    shares = [state.share for state in states]
    assert shares == sorted(shares)
    assert shares[-1] == 1


def test_the_preview_brings_a_comparison_of_the_samples_before_anything_is_learned(states, few_shot_request):
    brought = [state for state in states if state.preview is not None]
    assert [state.phase for state in brought] == ["preview"]
    assert brought[0].preview.unfinished
    assert all(
        len(state.preview.comparison) == len(few_shot_request.samples) and state.losses == ()
        for state in brought
    )


def test_losses_and_estimates_grow_with_the_run(states):
    learned = [state for state in states if state.phase == "learn"]
    assert [len(state.losses) for state in learned] == list(range(1, 7))
    assert {one.method for one in states[-1].estimates} >= {"zero-shot", "text-probe"}
    assert all(one.low <= one.accuracy <= one.high for one in states[-1].estimates)


def test_what_is_kept_holds_the_samples_both_answers_and_the_story(states, few_shot_request):
    saved = states[-1].result
    assert saved.labels == tuple(sample.label for sample in few_shot_request.samples)
    assert saved.comparison.adapted.classes == few_shot_request.classes
    assert saved.sentence
    assert not saved.stopped
    assert saved.settings == FewShotSettings(steps=6)
    assert copy.deepcopy(saved) is saved


def test_without_samples_there_is_no_comparison_but_a_verdict(small, few_shot_request):
    *_, last = adapt_few_shot(small, FewShotRequest(few_shot_request.rows), FewShotSettings(steps=2))
    assert last.result.comparison is None
    assert last.result.sentence


def test_the_same_lesson_and_seed_give_the_same_recipe(small, few_shot_request, states):
    *_, again = adapt_few_shot(small, few_shot_request, FewShotSettings(steps=6))
    assert again.result.recipe == states[-1].result.recipe


def test_a_run_that_is_stopped_keeps_the_best_so_far(small, few_shot_request):
    runs, seen = Runs(), 0
    with runs.begin("visitor") as stop_signal:
        for state in adapt_few_shot(
            small, few_shot_request, FewShotSettings(steps=LIMITS.steps), stop_signal=stop_signal
        ):
            if state.phase == "learn":
                seen += 1
                assert not runs.stop("another visitor")
                assert runs.stop("visitor")
    assert seen == 1
    assert state.result.stopped
    assert state.result.comparison is not None
    assert not runs.stop("visitor"), "a finished run is still held"


def test_a_run_that_takes_too_long_keeps_the_best_so_far(small, few_shot_request):
    *_, last = adapt_few_shot(small, few_shot_request, FewShotSettings(steps=LIMITS.steps), most_seconds=0)
    assert last.result.stopped
    assert len(last.losses) < LIMITS.steps


def test_a_run_that_is_stopped_while_it_reads_learns_nothing_and_says_so(small, few_shot_request):
    runs = Runs()
    with runs.begin("visitor") as stop_signal:
        states = adapt_few_shot(small, few_shot_request, stop_signal=stop_signal)
        assert next(states).phase == "read"
        assert runs.stop("visitor")
        with pytest.raises(atlas.AtlasError, match=text.page.STOPPED_EARLY):
            next(states)


@pytest.mark.parametrize("phase", ["encode", "preview"])
def test_a_run_that_is_stopped_before_its_first_step_keeps_zero_shot_or_a_head(
    small, few_shot_request, phase
):
    runs, learned = Runs(), 0
    with runs.begin("visitor") as stop_signal:
        for state in adapt_few_shot(
            small, few_shot_request, FewShotSettings(steps=LIMITS.steps), stop_signal=stop_signal
        ):
            learned += state.phase == "learn"
            if state.phase == phase:
                assert runs.stop("visitor")
    assert learned <= 1
    assert state.result.stopped


def test_nobody_can_stop_what_has_no_session():
    runs = Runs()
    with runs.begin(None) as stop_signal:
        assert not runs.stop(None)
        assert not stop_signal.is_set


@pytest.mark.parametrize("name", ["cat", "Cat"])
def test_two_classes_of_one_name_are_refused(small, few_shot_request, name):
    rows = (ClassRow("cat", few_shot_request.rows[0].paths), ClassRow(name, few_shot_request.rows[1].paths))
    with pytest.raises(atlas.AtlasError, match="twice"):
        list(adapt_few_shot(small, FewShotRequest(rows)))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_on_the_page_is_known_to_the_engine(small, few_shot_request, method):
    *_, last = adapt_few_shot(
        small, FewShotRequest(few_shot_request.rows), FewShotSettings(method=method, steps=1)
    )
    assert last.result.recipe.classes == few_shot_request.classes


def test_visitors_side_by_side_get_what_they_would_get_alone(small, few_shot_request, states):
    results = {}

    def visit(number):
        *_, last = adapt_few_shot(small, few_shot_request, FewShotSettings(steps=6))
        results[number] = last.result.recipe

    threads = [threading.Thread(target=visit, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1] == states[-1].result.recipe


def test_a_link_carries_names_and_settings_and_nothing_else():
    chosen = FewShotSettings(method="atlas", steps=80, lr=0.1, seed=7)
    query = to_query(["otter", "a & b", "<i>"], chosen)
    pairs = [tuple(part.split("=", 1)) for part in query[1:].split("&")]
    assert {key for key, _ in pairs} == {"class", "method", "steps", "lr", "seed"}
    assert few_shot_from_query(parse_qsl(query[1:])) == (("otter", "a & b", "<i>"), chosen)


@pytest.mark.parametrize(
    "pairs",
    [
        [("method", "rm -rf"), ("steps", "1e9"), ("lr", "nan"), ("seed", "-1")],
        [("steps", "many"), ("lr", ""), ("seed", "inf")],
        [],
    ],
)
def test_a_link_with_nonsense_gives_the_defaults(pairs):
    assert few_shot_from_query(pairs) == ((), FewShotSettings())


def test_a_link_names_the_model_where_it_is_not_the_usual_and_its_reader_is_told():
    query = to_query(["otter", "seal"], FewShotSettings(), model="ViT-B-32/openai")
    pairs = parse_qsl(query[1:])
    assert few_shot_from_query(pairs) == (("otter", "seal"), FewShotSettings())
    said = model_mismatch(pairs, "bundled")
    assert "made with the model ViT-B-32/openai, and bundled answers you now" in said
    assert model_mismatch(pairs, "ViT-B-32/openai") == model_mismatch(parse_qsl("class=a"), "bundled") == ""
    assert model_mismatch([("model", "<script>"), ("class", "a")], "bundled") == ""


def test_a_link_names_no_more_classes_than_the_page_has_rows():
    names, _ = few_shot_from_query([("class", "x" * 500)] * 50)
    assert len(names) == LIMITS.rows
    assert max(map(len, names)) <= 100
