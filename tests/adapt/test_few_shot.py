"""Few-shot adaptation from pictures to an adapted tower, on a small real model and bank."""

from __future__ import annotations

import dataclasses
from itertools import groupby

import pytest
import torch

from atlas_engine.adapt import few_shot
from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.adapt.settings import FewShotConfig, FewShotRunSettings
from atlas_engine.bank.bank import TaskVectorBank
from atlas_engine.bank.bank_file import save_bank
from atlas_engine.bank.vector import TaskVector
from atlas_engine.data.image import Image
from atlas_engine.data.support import Support
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.heads.registry import HEADS
from atlas_engine.recipe import Recipe
from atlas_engine.result import Outcome
from tests.drawn import write_pictures
from tests.engines import tiny_engine

CONFIG = FewShotConfig(steps=12, batch=8, lr=0.2)


@pytest.fixture(scope="module")
def bank():
    """Three random directions, as long as a tenth of the weights."""
    seeded = torch.Generator().manual_seed(0)
    base = dict(tiny_engine().backbone.visual.named_parameters())
    vectors = []
    for name in ("first", "second", "third"):
        moved = {
            key: weight.detach()
            + 0.1 * weight.detach().std().nan_to_num(0.1) * torch.randn(weight.shape, generator=seeded)
            for key, weight in base.items()
        }
        vectors.append(TaskVector.between(name, base=base, tuned=moved))
    return TaskVectorBank.from_vectors(vectors)


@pytest.fixture(scope="module")
def support(tmp_path_factory):
    folder = tmp_path_factory.mktemp("support") / "set"
    return Support.from_folder(write_pictures(folder, {"red": 4, "blue": 4}))


def test_the_loss_falls_and_the_recipe_rebuilds_the_adapted_tower(support, bank, tmp_path):
    engine = tiny_engine()
    run = engine.few_shot(support, method="atlas", bank=bank, config=CONFIG, seed=3)
    losses = [step.loss for step in run if step.phase == "learn"]
    result = run.result()
    assert len(losses) == len(result.history) == 12
    assert losses[-1] < losses[0]
    assert result.coefficients.tasks == ("first", "second", "third")
    result.save(tmp_path / "r.atlas.safetensors")
    recipe = Recipe.load(tmp_path / "r.atlas.safetensors")
    assert recipe.classes == ("blue", "red")
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        adapted = engine.adapted(recipe, bank=bank)(images)
        base = engine.backbone.visual(images)
        again = engine.adapted(result.recipe, bank=bank)(images)
    assert torch.equal(adapted, again)
    assert not torch.allclose(adapted, base)


def test_the_same_seed_gives_the_same_coefficients_and_another_seed_others(support, bank):
    engine = tiny_engine()
    short = FewShotConfig(steps=3, batch=4)
    first, again, other = (
        engine.few_shot(support, method="atlas", bank=bank, config=short, seed=seed)
        .result()
        .coefficients.values
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_auto_tells_a_preview_then_steps_then_what_it_kept(support, bank):
    run = tiny_engine().few_shot(support, bank=bank, config=CONFIG)
    steps = list(run)
    result = run.result()
    assert [phase for phase, _ in groupby(step.phase for step in steps)] == [
        "preview",
        "encode",
        "learn",
    ]
    (preview,) = [step.preview for step in steps if step.preview is not None]
    assert preview.method == "text-probe"
    assert not preview.coefficients.values.any()
    shares = [step.share for step in steps]
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
    assert [one.method for one in result.estimates] == [
        "zero-shot",
        "text-probe",
        "atlas+text-probe",
    ]
    assert all(one.images == 8 for one in result.estimates)
    assert result.verdict.kept == result.recipe.method


def test_every_fold_is_learned_beside_the_run_of_all(support, bank):
    result = tiny_engine().few_shot(support, bank=bank, config=CONFIG).result()
    assert {len(step.losses) for step in result.history} == {FewShotRunSettings().folds + 1}


def test_a_run_that_is_stopped_keeps_the_best_that_was_checked(support, bank):
    run = tiny_engine().few_shot(support, bank=bank, config=CONFIG)
    for step in run:
        if step.phase == "learn" and step.index == 1:
            run.cancel()
    result = run.result()
    assert result.outcome is Outcome.cancelled
    assert len(result.history) == 2
    assert [one.method for one in result.estimates] == ["zero-shot", "text-probe"]
    assert result.verdict.kept in ("zero-shot", "text-probe")
    assert result.recipe.method == result.verdict.kept


def test_zero_shot_is_the_result_where_nothing_beats_it(support, bank):
    """Pictures are called what zero-shot calls them, so there is nothing to win."""
    engine = tiny_engine()
    draw = torch.Generator().manual_seed(0)
    patches = torch.randint(0, 256, (60, 2, 2, 3), generator=draw, dtype=torch.uint8)
    patches = patches.repeat_interleave(16, dim=1).repeat_interleave(16, dim=2)
    pictures = [Image(f"{place}.png", pixels.numpy()) for place, pixels in enumerate(patches)]
    said = engine.predict(pictures, ["one", "two"]).probs.argmax(dim=1)
    known = [place for label in (0, 1) for place in (said == label).nonzero().squeeze(1).tolist()[:6]]
    called = Support(tuple(pictures[place] for place in known), tuple(said[known].tolist()), ("one", "two"))
    result = engine.few_shot(called, bank=bank, config=CONFIG).result()
    assert result.fell_back
    assert result.verdict.helped is False
    assert "zero-shot was kept" in result.verdict.sentence
    assert not result.coefficients.values.any()
    both = engine.compare(support.images, result.recipe, bank=bank)
    assert torch.allclose(both.zero_shot.probs, both.adapted.probs, atol=1e-6)


@pytest.mark.parametrize("method", [name for name in FEW_SHOT_METHODS if name not in ("zero-shot", "auto")])
def test_a_saved_recipe_of_any_method_gives_the_same_logits(method, support, bank, tmp_path):
    engine = tiny_engine()
    result = engine.few_shot(support, method=method, bank=bank, config=CONFIG).result()
    assert result.recipe.method == method
    result.save(tmp_path / "r.atlas.safetensors")
    squares = support.pixels(32, resize="shortest", interpolation="bicubic")
    logits = engine.logits(result.recipe, squares, bank=bank)
    assert torch.equal(
        logits, engine.logits(Recipe.load(tmp_path / "r.atlas.safetensors"), squares, bank=bank)
    )
    zero_shot = engine.backbone.logit_scale * engine.features(support.images) @ engine.head(support.classes).T
    assert not torch.allclose(logits, zero_shot, atol=1e-3)


def test_a_head_that_follows_changes_no_coefficients_and_half_of_these_are_kept(support, bank, monkeypatch):
    def coefficients():
        run = tiny_engine().few_shot(support, method="atlas+text-probe", bank=bank, config=CONFIG)
        return run.result().coefficients.values

    half = coefficients()
    other = dataclasses.replace(HEADS["text-probe"], initialise=HEADS["linear-probe"].initialise)
    monkeypatch.setattr(few_shot, "HEADS", {**HEADS, "text-probe": other})
    assert half.any()
    assert torch.equal(coefficients(), half)
    whole = dataclasses.replace(FEW_SHOT_METHODS["atlas+text-probe"], keep_fraction=1.0)
    monkeypatch.setattr(few_shot, "find_method", lambda task, name: whole)
    assert torch.equal(0.5 * coefficients(), half)


def test_a_head_that_follows_is_fitted_to_what_the_coefficients_make_of_the_pictures(support, bank):
    engine = tiny_engine()
    moved, still = (
        engine.few_shot(support, method="atlas+text-probe", bank=bank, config=config).result().recipe.head
        for config in (CONFIG, dataclasses.replace(CONFIG, steps=0))
    )
    alone = engine.few_shot(support, method="text-probe", bank=bank, config=CONFIG).result().recipe.head
    assert torch.allclose(still["weight"].float(), alone["weight"].float(), atol=1e-2)  # of half precision
    assert not torch.allclose(moved["weight"].float(), alone["weight"].float(), atol=1e-2)


def test_learning_may_start_where_slopes_point(support, bank):
    engine = tiny_engine()
    still = dataclasses.replace(CONFIG, steps=0)
    slope, start, zero = (
        engine.few_shot(support, method=method, bank=bank, config=still).result().coefficients.values
        for method in ("slope", "slope+atlas", "atlas")
    )
    assert slope.any()
    assert torch.equal(slope, start)
    assert not zero.any()


def test_only_the_late_part_moves_unless_all_may(support, bank):
    engine = tiny_engine()
    moved = {}
    for share in (0.4, 1.0):
        config = FewShotConfig(steps=3, batch=8, share=share)
        table = engine.few_shot(support, method="atlas", bank=bank, config=config).result().coefficients.table
        moved[share] = int(table.any(dim=0).sum())
    assert 0 < moved[0.4] < moved[1.0]


def test_an_unknown_method_is_refused_at_once_with_the_nearest(support, bank):
    with pytest.raises(ConfigError, match="atlas\\+tip"):
        tiny_engine().few_shot(support, method="atlas+tpi", bank=bank)


def test_a_bank_for_another_model_is_refused(support, bank):
    vectors = [bank.vector(name) for name in bank.tasks]
    strange = TaskVectorBank.from_vectors(
        [TaskVector(vector.name, vector.blocks, "0" * 64, vector.info) for vector in vectors]
    )
    with pytest.raises(BankError, match="made for another model than tiny"):
        tiny_engine().few_shot(support, bank=strange).result()


def test_a_model_without_a_bank_says_how_to_get_one():
    with pytest.raises(BankError, match="tiny has no bank of task vectors"):
        _ = tiny_engine().bank


def test_a_bank_file_is_read_when_it_is_first_needed(bank, tmp_path):
    save_bank(bank, tmp_path / "b.safetensors")
    engine = Atlas(tiny_engine().backbone, bank_path=tmp_path / "b.safetensors")
    assert engine.bank.tasks == bank.tasks
    assert engine.bank is engine.bank


def test_a_share_of_nothing_is_refused_and_not_taken_for_the_whole_tower(support, bank):
    with pytest.raises(ConfigError, match="It must be above 0"):
        tiny_engine().few_shot(support, bank=bank, config=FewShotConfig(share=0.0)).result()
