"""What a run hands over is frozen, on the CPU, and survives a deep copy."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from atlas_engine.bank.blocks import block_table
from atlas_engine.compose.coefficients import Coefficients
from atlas_engine.recipe import Recipe
from atlas_engine.result import AdaptResult, Outcome, Step, Verdict

VERDICT = Verdict("atlas", helped=True, sentence="Adapting helped.")


@pytest.fixture
def result():
    coefficients = Coefficients.zeros(["cars"], block_table([("w", torch.zeros(2, 2))]))
    step = Step(index=0, of=1, loss=0.5, losses=(0.5,), lr=0.1, grad_norm=1.0, scores=None, seconds=0.1)
    recipe = Recipe(coefficients, model="tiny", model_fingerprint="a", bank_fingerprint="b")
    reason = "all 1 steps were taken."
    return AdaptResult(recipe, Outcome.finished, reason, (step,), seconds=1.25, verdict=VERDICT)


def test_a_result_survives_a_deep_copy(result):
    assert copy.deepcopy(result) == result


def test_a_result_is_frozen(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.seconds = 0.0


def test_a_result_tells_its_end_in_one_line(result):
    assert repr(result) == (
        "AdaptResult(finished after 1 steps, 1.2 s, "
        "Recipe(coefficients for tiny, 1 tasks × 1 blocks, seed 0))"
    )


def test_a_snapshot_is_a_copy_and_a_record_has_none():
    values = {"lam": torch.ones(1, 2)}
    step = Step(
        index=0, of=1, loss=0.5, losses=(0.5,), lr=0.1, grad_norm=1.0, scores=None, seconds=0.1, values=values
    )
    step.snapshot()["lam"].zero_()
    assert values["lam"].tolist() == [[1.0, 1.0]]
    assert step.record().values is None
    assert step.record() == step


def test_a_result_saves_its_recipe(result, tmp_path):
    result.save(tmp_path / "r.safetensors")
    assert (
        Recipe.load(tmp_path / "r.safetensors").coefficients["cars", "w"] == result.coefficients["cars", "w"]
    )
