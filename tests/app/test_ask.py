"""The handler behind the Ask button, with the real model."""

from __future__ import annotations

import pytest

import atlas_engine as atlas
from app.examples import ASK_EXAMPLES
from app.handlers.ask import as_json, ask, split_class_names
from app.limits import LIMITS
from app.session import Runs

# What the pictures show, in each example's own words, said by a person.
TRUTH = {
    "Things": ["cat", "coffee", "rocket"],
    "Finer words": ["tabby cat", "espresso"],
    "No colour": ["horse", "photographer"],
}


def last(states):
    *_, final = states
    return final


def refusal(engine, paths, class_text):
    with pytest.raises(atlas.AtlasError) as caught:
        last(ask(engine, paths, class_text))
    return str(caught.value)


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("otter, seal", ("otter", "seal")),
        ("otter\n sea   lion \r\nseal", ("otter", "sea lion", "seal")),
        ("otter; seal,,\n,", ("otter", "seal")),
        (" \n,; ", ()),
    ],
)
def test_class_names_are_split_at_commas_semicolons_and_lines(typed, names):
    assert split_class_names(typed) == names


@pytest.mark.parametrize("example", ASK_EXAMPLES, ids=lambda example: example.title)
def test_every_example_is_answered_rightly(engine, example):
    asked = last(ask(engine, example.paths, example.class_text))
    assert [answer.ranking[0][0] for answer in asked.answers] == TRUTH[example.title]
    assert asked.left_out == ()


def test_guesses_are_ranked_and_share_one_whole(engine):
    example = ASK_EXAMPLES[0]
    for answer in last(ask(engine, example.paths, example.class_text)).answers:
        probs = [prob for _, prob in answer.ranking]
        assert probs == sorted(probs, reverse=True)
        assert sum(probs) == pytest.approx(1, abs=1e-5)
        assert {label for label, _ in answer.ranking} == set(example.classes)


def test_the_first_state_comes_before_any_work_and_answers_follow_a_few_at_a_time(engine, draw):
    paths = [draw(f"{n}.png") for n in range(LIMITS.images_per_step + 1)]
    states = list(ask(engine, paths, "a, b"))
    assert [state.seen for state in states] == [0, LIMITS.images_per_step, LIMITS.images_per_step + 1]
    assert [state.finished for state in states] == [False, False, True]
    assert [answer.path for answer in states[-1].answers] == paths


def test_a_question_that_is_stopped_keeps_the_answers_so_far(engine, draw):
    paths, runs = [draw(f"{n}.png") for n in range(2 * LIMITS.images_per_step)], Runs()
    with runs.begin("visitor") as stop_signal:
        for asked in ask(engine, paths, "a, b", stop_signal=stop_signal):
            if asked.seen:
                runs.stop("visitor")
    assert asked.stopped
    assert asked.finished
    assert len(asked.answers) == LIMITS.images_per_step


def test_a_bad_picture_is_left_out_by_name_and_the_good_ones_are_answered(engine, draw, tmp_path):
    bad = tmp_path / "notes.jpg"
    bad.write_text("these are only words")
    asked = last(ask(engine, [str(bad), draw("good.png")], "cat, dog"))
    assert [answer.name for answer in asked.answers] == ["good.png"]
    assert len(asked.left_out) == 1
    assert asked.left_out[0].startswith("notes.jpg:")
    assert asked.finished


def test_only_bad_pictures_give_sentences_and_no_answers(engine, tmp_path):
    (tmp_path / "empty.png").touch()
    asked = last(ask(engine, [str(tmp_path / "empty.png")], "cat, dog"))
    assert (asked.answers, len(asked.left_out), asked.finished) == ((), 1, True)


def test_a_question_without_a_picture_is_refused(engine):
    assert "no image" in refusal(engine, [], "cat, dog")


@pytest.mark.parametrize(("typed", "said"), [("", "no class name"), ("cat", "one class name")])
def test_a_question_with_fewer_than_two_names_is_refused(engine, draw, typed, said):
    assert said in refusal(engine, [draw("a.png")], typed)


def test_too_many_names_are_refused_with_both_numbers(engine, draw):
    typed = ",".join(f"thing {n}" for n in range(LIMITS.classes + 1))
    said = refusal(engine, [draw("a.png")], typed)
    assert str(LIMITS.classes + 1) in said
    assert str(LIMITS.classes) in said


def test_too_many_pictures_are_refused_before_any_is_read(engine):
    said = refusal(engine, ["nowhere.jpg"] * (LIMITS.images + 1), "cat, dog")
    assert str(LIMITS.images + 1) in said


@pytest.mark.parametrize("typed", ["cat, Cat", f"cat, {'x' * 500}"])
def test_names_that_the_engine_refuses_are_refused_in_its_words(engine, draw, typed):
    assert refusal(engine, [draw("a.png")], typed).startswith("class name")


def test_rows_are_plain_and_hold_every_class(engine, draw):
    rows = as_json(last(ask(engine, [draw("a.png")], "cat, dog, owl")))
    (row,) = rows["rows"]
    assert row["image"] == "a.png"
    assert row["label"] == row["top"][0]["label"]
    assert row["prob"] == row["top"][0]["prob"]
    assert {guess["label"] for guess in row["top"]} == {"cat", "dog", "owl"}
    assert rows["left_out"] == []
