"""Test-time adaptation from pictures without labels to a recipe, on a small real model and bank."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch

from atlas_engine.adapt.collapse import AnswerStats
from atlas_engine.adapt.methods import NORM_BASELINES, UNLABELLED_METHODS
from atlas_engine.adapt.settings import TestTimeConfig, TestTimeRunSettings
from atlas_engine.adapt.stream import StreamConfig
from atlas_engine.data.image import Image
from atlas_engine.engine import open as open_atlas
from atlas_engine.errors import ConfigError, SupportError
from atlas_engine.recipe import Recipe
from atlas_engine.result import Outcome
from tests.drawn import COLOURS, square
from tests.task_vectors import engine_with_task_vectors

CLASSES = ["red", "blue", "dark green"]
CONFIG = TestTimeConfig(steps=3, epochs=0, batch=8, views=1)
FEWEST = 8  # pictures, for sets of twelve


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    return engine_with_task_vectors(tmp_path_factory.mktemp("task_vectors"))


@pytest.fixture(scope="module")
def bundled():
    with open_atlas(cache=False) as opened:
        yield opened


@pytest.fixture(scope="module")
def unlabelled():
    """Twelve pictures of three colours."""
    colours = [COLOURS[name] for name in ("red", "blue", "dark_green")]
    return [Image(f"{i}.png", square(colours[i % 3], seed=i, side=40)) for i in range(12)]


@pytest.fixture
def sure(monkeypatch):
    """A random model knows nothing, and would be seen to: let it be believed, and twelve pictures be many."""
    for bound, value in {
        "FEWEST_IMAGES": FEWEST,
        "CONFIDENCE_RISE": 1.0,
        "INFORMED": -1.0,
        "INFORMED_IF_INCOMPLETE": -1.0,
    }.items():
        monkeypatch.setattr(f"atlas_engine.adapt.collapse.{bound}", value)
    monkeypatch.setattr("atlas_engine.adapt.stream.FEWEST_IMAGES", FEWEST)


def answers(engine, result, unlabelled):
    return engine.logits(result.recipe, engine.pixels(engine.read_images(unlabelled)))


def zero_shot(engine, unlabelled):
    return engine.backbone.logit_scale * engine.features(unlabelled) @ engine.head(CLASSES).T


@pytest.mark.parametrize("method", [name for name in UNLABELLED_METHODS if name not in ("zero-shot", "auto")])
def test_a_saved_recipe_of_any_method_gives_the_same_logits(method, engine, unlabelled, tmp_path):
    result = engine.test_time(unlabelled, CLASSES, objective=method, config=CONFIG).result()
    if not result.fell_back:
        assert result.recipe.method == result.verdict.kept == method
        assert not torch.allclose(
            answers(engine, result, unlabelled), zero_shot(engine, unlabelled), atol=1e-4
        )
    result.save(tmp_path / "r.atlas.safetensors")
    again = engine.logits(
        Recipe.load(tmp_path / "r.atlas.safetensors"), engine.pixels(engine.read_images(unlabelled))
    )
    assert torch.equal(answers(engine, result, unlabelled), again)
    assert again.isfinite().all()


def test_zero_shot_is_zero_shot(engine, unlabelled):
    result = engine.test_time(unlabelled, CLASSES, objective="zero-shot").result()
    torch.testing.assert_close(
        answers(engine, result, unlabelled), zero_shot(engine, unlabelled), atol=1e-4, rtol=1e-4
    )


def test_the_same_seed_gives_the_same_coefficients_and_another_seed_others(engine, unlabelled):
    first, again, other = (
        engine.test_time(unlabelled, CLASSES, objective="entropy", config=CONFIG, seed=seed)
        .result()
        .coefficients
        for seed in (0, 0, 1)
    )
    assert torch.equal(first.values, again.values)
    assert not torch.equal(first.values, other.values)


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(("bound", "kept"), [(0.0, "entropy+balanced"), (1.1, "entropy+proportioned")])
def test_auto_moves_norms_and_fits_a_head_by_which_classes_are_there(
    engine, unlabelled, monkeypatch, bound, kept
):
    for name in ("SPREAD", "SPREAD_AT_MOST"):
        monkeypatch.setattr(f"atlas_engine.adapt.collapse.{name}", bound)
    monkeypatch.setattr("atlas_engine.adapt.collapse.SPREAD_OF_FEW", 0.0)
    run = engine.test_time(unlabelled, CLASSES, config=CONFIG)
    assert {step.phase for step in run} == {"encode", "learn"}
    result = run.result()
    assert result.verdict.kept == result.recipe.method == kept
    _tells_what_changed(engine, result, unlabelled)
    moved = {
        block.kind
        for block, column in zip(
            result.coefficients.blocks, result.coefficients.table.unbind(dim=1), strict=True
        )
        if column.any()
    }
    assert moved == {"norm"}


def _tells_what_changed(engine, result, unlabelled):
    said = answers(engine, result, unlabelled).argmax(dim=1)
    changed = int((said != zero_shot(engine, unlabelled).argmax(dim=1)).sum())
    assert f"{changed} of 12 answers changed" in result.verdict.sentence
    assert result.estimates == ()


@pytest.mark.usefixtures("sure")
def test_auto_keeps_zero_shot_where_its_answers_crowd(engine, unlabelled, monkeypatch):
    monkeypatch.setattr("atlas_engine.adapt.collapse.CLASSES_IN_USE", 1.1)
    result = engine.test_time(unlabelled, CLASSES, config=CONFIG).result()
    assert result.fell_back
    assert "because its answers crowded" in result.verdict.sentence


def test_a_method_that_was_asked_for_goes_back_to_zero_shot_where_it_collapsed(
    engine, unlabelled, monkeypatch
):
    monkeypatch.setattr("atlas_engine.adapt.collapse.CLASSES_IN_USE", 1.1)
    result = engine.test_time(unlabelled, CLASSES, objective="entropy", config=CONFIG).result()
    assert result.fell_back
    assert "because its answers crowded" in result.verdict.sentence
    torch.testing.assert_close(
        answers(engine, result, unlabelled), zero_shot(engine, unlabelled), atol=1e-4, rtol=1e-4
    )


def test_coefficients_go_as_far_as_views_agree(engine, unlabelled, monkeypatch):
    """Where the views of half the way agree more than those of all of it, half is kept, and the other way."""

    def learned(agreements):
        told = iter([0.5, *agreements])  # of zero-shot, of half the way, of all of it
        monkeypatch.setattr(
            "atlas_engine.adapt.unlabelled.answer_stats",
            lambda *_: AnswerStats(3.0, 0.5, agreement=next(told)),
        )
        return engine.test_time(unlabelled, CLASSES, objective="entropy", config=CONFIG).result().coefficients

    half, whole = learned((0.8, 0.6)).values, learned((0.6, 0.8)).values
    assert whole.any()
    assert torch.allclose(half, 0.5 * whole)


def blank(value, name="blank.png"):
    return Image(name, np.full((32, 32, 3), value, dtype=np.uint8))


@pytest.mark.parametrize(
    ("pictures", "told"),
    [
        ([blank(9)], "one picture alone"),
        ([blank(9)] * 20, "all 20 pictures look the same"),
        ([blank(9, f"{i}.png") for i in range(5)], "all 5 pictures look the same"),
        (
            [Image(f"{i}", square((i * 9, 40, 90), seed=i, side=32)) for i in range(5)],
            "5 pictures are too few",
        ),
    ],
)
def test_pictures_that_teach_nothing_leave_zero_shot_with_a_reason(pictures, told, engine):
    result = engine.test_time(pictures, CLASSES, config=CONFIG).result()
    assert result.fell_back
    assert result.verdict.helped is False
    assert told in result.verdict.sentence
    logits = answers(engine, result, pictures)
    assert logits.isfinite().all()
    torch.testing.assert_close(logits, zero_shot(engine, pictures), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("count", [64, 65, 129])
def test_copies_of_one_picture_are_seen_to_be_that_however_many(count, bundled):
    """Rounding differs between batches of one and of many, and must not be taken for a difference."""
    result = bundled.test_time([blank(200)] * count, CLASSES, objective="balanced").result()
    assert result.fell_back
    assert f"all {count} pictures look the same" in result.verdict.sentence
    (baseline,) = {
        tuple(row)
        for row in bundled.test_time_norms([blank(200)] * count, CLASSES, method="ln-entropy")
        .result()
        .logits.argsort(dim=1)
        .tolist()
    }
    assert baseline == tuple(bundled.predict([blank(200)], CLASSES).probs.argsort(dim=1)[0].tolist())


@pytest.mark.parametrize("method", [name for name in UNLABELLED_METHODS if name not in ("zero-shot", "auto")])
@pytest.mark.parametrize("count", [2, 5])
def test_a_handful_of_blank_and_other_pictures_never_makes_nan(method, count, engine, unlabelled):
    mixed = [blank(0), *unlabelled[: count - 1]]
    result = engine.test_time(mixed, CLASSES, objective=method, config=CONFIG).result()
    assert answers(engine, result, mixed).isfinite().all()


def test_bad_words_are_refused_in_one_sentence(engine, unlabelled):
    with pytest.raises(SupportError, match="got no images"):
        engine.test_time([], CLASSES).result()
    with pytest.raises(SupportError, match="at least 2"):
        engine.test_time(unlabelled, ["red"]).result()
    with pytest.raises(ConfigError, match="entropy"):
        engine.test_time(unlabelled, CLASSES, objective="entropi")
    with pytest.raises(ConfigError, match="test_time_norms"):
        engine.test_time(unlabelled, CLASSES, objective="ln-ufm")
    with pytest.raises(ConfigError, match="ln-ufm"):
        engine.test_time_norms(unlabelled, CLASSES, method="ln-ufn").result()


def test_nothing_that_learns_has_a_place_for_labels(engine, unlabelled):
    """Names of files are all that could tell a class, and they change nothing."""
    assert engine._unlabelled_context(engine.pixels([]), CLASSES).task.labels is None
    assert "labels" not in inspect.signature(engine.test_time).parameters
    renamed = [Image(f"red/{i}.png", one.pixels) for i, one in enumerate(unlabelled)]
    one, other = (
        engine.test_time(some, CLASSES, objective="ufm", config=CONFIG).result().recipe
        for some in (unlabelled, renamed)
    )
    assert one == other


def test_a_cancelled_run_keeps_what_it_has(engine, unlabelled):
    run = engine.test_time(unlabelled, CLASSES, objective="entropy", config=TestTimeConfig(steps=50, batch=8))
    for step in run:
        if step.phase == "learn" and step.index == 1:
            run.cancel()
    result = run.result()
    assert result.outcome is Outcome.cancelled
    assert len(result.history) == 2
    assert result.coefficients.values.any() or result.fell_back


@pytest.mark.parametrize("limit", [None, 1e-6])
def test_a_run_that_ends_while_it_looks_keeps_zero_shot(engine, unlabelled, limit):
    config = TestTimeConfig(steps=50, batch=8, views=30, deadline_seconds=limit)
    run = engine.test_time(unlabelled, CLASSES, objective="entropy", config=config)
    looks = 0
    for step in run:
        looks += step.phase == "encode"
        if limit is None:
            run.cancel()
    result = run.result()
    assert looks <= 2
    assert result.outcome is (Outcome.cancelled if limit is None else Outcome.deadline)
    assert result.fell_back
    assert "ended before anything was learned" in result.verdict.sentence
    torch.testing.assert_close(
        answers(engine, result, unlabelled), zero_shot(engine, unlabelled), atol=1e-4, rtol=1e-4
    )


def test_a_baseline_that_ends_while_it_looks_answers_as_zero_shot(engine, unlabelled):
    config = TestTimeConfig(steps=50, batch=8, deadline_seconds=1e-6)
    ended = engine.test_time_norms(unlabelled, CLASSES, method="ln-entropy", config=config).result()
    assert ended.outcome is Outcome.deadline
    torch.testing.assert_close(ended.logits, zero_shot(engine, unlabelled), atol=1e-4, rtol=1e-4)


def test_a_recipe_tells_what_its_run_really_went_by(engine, unlabelled):
    config = TestTimeConfig(steps=3, epochs=4, batch=8, views=1, sharpness=0.3, collapse_below=0.0)
    kept = engine.test_time(unlabelled, CLASSES, objective="sar", config=config).result().recipe.config
    assert (kept["steps"], kept["sharpness"], kept["collapse_below"]) == (6, 0.3, 0.0)
    strides = engine.test_time(unlabelled, CLASSES, objective="entropy+balanced", config=CONFIG).result()
    assert strides.history[0].lr == strides.recipe.config["lr"] == 50 * TestTimeRunSettings().lr


@pytest.mark.parametrize("method", NORM_BASELINES)
def test_the_baselines_answer_and_leave_the_model_alone(method, engine, unlabelled):
    before = zero_shot(engine, unlabelled)
    answer = engine.test_time_norms(unlabelled, CLASSES, method=method, config=CONFIG).result()
    assert answer.logits.shape == (len(unlabelled), len(CLASSES))
    assert answer.logits.isfinite().all()
    assert torch.equal(zero_shot(engine, unlabelled), before)


STREAMED = {"objective": "entropy+balanced", "learning": CONFIG}


@pytest.mark.usefixtures("sure")
def test_a_stream_begins_as_zero_shot_and_a_reset_takes_it_back(engine, unlabelled):
    stream = engine.stream(CLASSES, **STREAMED)
    plain = engine.predict(unlabelled, CLASSES).probs
    told = torch.cat([stream.answer(one).probs for one in unlabelled])
    assert torch.allclose(told[: FEWEST - 1], plain[: FEWEST - 1], atol=1e-4)
    assert not torch.allclose(told[-1], plain[-1], atol=1e-4)
    assert stream.seen == len(unlabelled)
    stream.reset()
    assert stream.seen == 0
    assert torch.allclose(stream.answer(unlabelled[-1]).probs, plain[-1:], atol=1e-4)
    assert "fewer than" in stream.result().verdict.sentence


@pytest.mark.usefixtures("sure")
def test_a_stream_goes_by_a_result_that_answers_as_it_does(engine, unlabelled):
    stream = engine.stream(CLASSES, **STREAMED)
    assert stream.result().fell_back
    told = [stream.answer(one) for one in unlabelled][-1]
    result = stream.result()
    assert result.recipe.method == "entropy+balanced"
    assert result.coefficients.values.any()
    assert len(result.history) == CONFIG.steps
    again = engine.compare(unlabelled[-1:], result.recipe).adapted
    assert torch.allclose(told.probs, again.probs, atol=1e-4)
    offline = engine.test_time(
        unlabelled[:FEWEST], CLASSES, objective="entropy+balanced", config=CONFIG
    ).result()
    assert torch.equal(offline.coefficients.values, result.coefficients.values)


@pytest.mark.usefixtures("sure")
def test_a_stream_learns_anew_from_the_latest_pictures_alone(engine, unlabelled, monkeypatch):
    monkeypatch.setattr(StreamConfig, "__post_init__", lambda _: None)  # a memory for nine, of small sets
    stream = engine.stream(CLASSES, config=StreamConfig(recent=9, every=4), **STREAMED)
    learned = []
    for one in unlabelled:
        stream.answer(one)
        learned.append(stream.result())
    assert [place for place in range(1, 12) if learned[place] is not learned[place - 1]] == [7, 11]
    fresh = engine.test_time(unlabelled[-9:], CLASSES, objective="entropy+balanced", config=CONFIG).result()
    assert torch.equal(fresh.coefficients.values, learned[-1].coefficients.values)


def test_a_stream_that_could_never_learn_is_refused(engine):
    with pytest.raises(ConfigError, match="recent"):
        StreamConfig(recent=39)
    with pytest.raises(ConfigError, match="entropy"):
        engine.stream(CLASSES, objective="entropi")
