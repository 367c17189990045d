"""What page and replicas say to each other arrives as it was, and nothing else is taken for it."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace

import pytest
import torch

import atlas_engine as atlas
from app.replicas import messages
from app.replicas.frames import encode_facts, frame, iter_frames, read_refusal, refusal
from tests.drawn import ROOT

RECIPE = ROOT / "assets" / "examples" / "apples" / "recipe.atlas.safetensors"


def drawn_images(count=3):
    pixels = torch.randint(0, 256, (count, 12, 16, 3), generator=torch.Generator().manual_seed(0))
    return [atlas.Image(f"{i}.png", one.to(torch.uint8).numpy()) for i, one in enumerate(pixels)]


def step(**changes):
    estimate = atlas.Estimate("auto", 0.5, 0.1, 1 / 3, 20)
    return replace(
        atlas.Step(1, 24, 0.1, (0.1, 0.3), 1e-3, 1.7, None, 2.5, "learn", 1 / 7, (estimate,)), **changes
    )


def test_images_arrive_with_their_names_and_pixels():
    images = drawn_images()
    body = messages.encode({"names": [one.name for one in images]}, messages.images_as_tensors(images))
    arrived = messages.images_from(*messages.decode(body))
    assert list(arrived) == images
    assert [one.name for one in arrived] == ["0.png", "1.png", "2.png"]


def test_a_comparison_arrives_bit_for_bit():
    probs = torch.rand(2, 2, generator=torch.Generator().manual_seed(0))
    before = atlas.Predictions(("a", "b"), ("cat", "dög"), probs)
    after = atlas.Predictions(("a", "b"), ("cat", "dög"), probs / 3, (True, False))
    arrived = messages.comparison_from(messages.comparison_as_message(atlas.Comparison(before, after)))
    assert torch.equal(arrived.adapted.probs, after.probs)
    assert arrived.adapted.rejected == (True, False)
    assert arrived.zero_shot.rejected is None
    assert (arrived.zero_shot.names, arrived.zero_shot.classes) == (before.names, before.classes)


def test_a_result_arrives_with_its_recipe_history_and_advice():
    recipe = atlas.Recipe.load(RECIPE)
    points = [atlas.CurvePoint(n, 0.1 * n, 0.0, 1.0) for n in (1, 2, 4)]
    result = atlas.AdaptResult(
        recipe,
        atlas.Outcome.cancelled,
        "asked",
        (step(), step(index=2, scores=(0.5,))),
        3.25,
        atlas.Verdict("auto", None, "Nobody knows."),
        step().estimates,
        {"zero-shot": recipe},
        atlas.Advice("More.", False, 4, points[1], points[2], tuple(points)),
    )
    facts, tensors = messages.decode(messages.result_as_message(result, "0" * 64))
    arrived = messages.result_from(facts, tensors)
    assert arrived == result
    assert facts["recipe"] == "0" * 64


def test_a_step_arrives_with_the_recipe_that_it_brings():
    recipe = atlas.Recipe.load(RECIPE)
    facts, tensors = messages.decode(messages.step_as_message(step(preview=recipe)))
    arrived = messages.step_from(facts["step"], preview=messages.recipe_from(tensors["preview"]))
    assert arrived == step()
    assert arrived.preview == recipe


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x" * 100,
        pickle.dumps({"names": ["a"]}),
        encode_facts({"names": []}),
        encode_facts({"names": "a"}),
    ],
    ids=["nothing", "noise", "a pickle", "no images", "a text for a list"],
)
def test_other_bytes_are_refused_in_words(body):
    with pytest.raises(atlas.AtlasError, match="cannot be read"):
        messages.images_from(*messages.decode(body))


def test_an_image_that_is_announced_but_not_there_is_refused():
    with pytest.raises(atlas.AtlasError, match="cannot be read"):
        messages.images_from({"names": ["a"]}, {})


def test_a_stream_gives_its_messages_and_says_when_it_breaks_off():
    bodies = [encode_facts({"n": 1}), refusal('no "room"')]
    stream = b"".join(map(frame, bodies))
    assert list(iter_frames(io.BytesIO(stream).read)) == bodies
    assert [read_refusal(body) for body in bodies] == [None, 'no "room"']
    with pytest.raises(atlas.AtlasError, match="has gone"):
        list(iter_frames(io.BytesIO(stream[:-3]).read))
