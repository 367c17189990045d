"""The methods compared: each learns from the shots alone, with the same budget, and says its cost."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional as F

from atlas_engine.adapt.methods import FEW_SHOT_METHODS
from atlas_engine.adapt.settings import FewShotConfig, FewShotRunSettings
from atlas_engine.adapt.trainable_part import multi_level_features
from atlas_engine.adapt.verdict import held_out_folds
from atlas_engine.bank.vector import fingerprint
from atlas_engine.compose.coefficients import Layout
from atlas_engine.data.augment import Augment
from atlas_engine.engine import Atlas
from atlas_engine.errors import BankError, ConfigError
from atlas_engine.heads.base import LabelledFeatures
from atlas_engine.heads.registry import HEADS
from studies.grid import key_of
from studies.methods import STUDY_METHODS, Solver, few_shot_facts, find_study_method
from studies.problems.few_shot import accuracy, draw_problem, shot_pixels, with_shots
from tests.studies.drawn_tasks import QUICK

ALONE = ("tip", "tip-f", "lpp")
TRAINED = ("finetune", "lora")
HALFWAY = ("finetune-half+head", "lora-half+head", "finetune-half+head-long")
ON_LEVELS = ("linear-probe-levels", "kernel-ridge")
MIXING = (
    "linear-probe",
    "text-probe",
    "slope",
    "atlas-iso",
    "atlas",
    "atlas-half",
    "slope+atlas",
    "atlas+tip",
    "atlas+lpp",
    "atlas+text-probe",
    "atlas-rows+text-probe",
    "paper",
    "paper+tip",
    "paper+lpp",
    "auto",
)
BUDGET = FewShotConfig(steps=6, batch=4)


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, seed=1)


@pytest.fixture(scope="module")
def solver(tiny, bank):
    return Solver(tiny, bank=bank, config=BUDGET)


@pytest.fixture(scope="module")
def answers(solver, problem):
    return {name: STUDY_METHODS[name].solve(solver, problem) for name in STUDY_METHODS}


@pytest.fixture
def views(monkeypatch):
    """How many images each random view was made of."""
    counts, real = [], Augment.__call__

    def counting(self, pixels, generator):
        counts.append(len(pixels))
        return real(self, pixels, generator)

    monkeypatch.setattr(Augment, "__call__", counting)
    return counts


def loss(logits, labels):
    return float(F.cross_entropy(logits, labels))


def on_shots(solver, problem, name):
    """The answer of a method for the very images that it learns from."""
    own = shot_pixels(solver.engine, problem)
    labels = torch.tensor(problem.support.labels)
    asked = type(problem)(problem.target, problem.seed, problem.support, own, labels, "shots")
    return STUDY_METHODS[name].solve(solver, asked).logits, labels


def test_the_table_has_every_method_and_says_which_mix_vectors():
    assert sorted(STUDY_METHODS) == sorted(["zero-shot", *ALONE, *TRAINED, *HALFWAY, *ON_LEVELS, *MIXING])
    assert {name for name, method in STUDY_METHODS.items() if method.mixes} == set(MIXING)
    with pytest.raises(ConfigError, match=r"method 'atlas\+lp' is not known. Did you mean 'atlas\+lpp'"):
        find_study_method("atlas+lp")


def test_every_method_has_logits_for_every_test_image(answers, problem):
    for name, answer in answers.items():
        assert answer.logits.shape == (18, 3), name
        assert bool(torch.isfinite(answer.logits).all()), name
        assert answer.seconds > 0 or name == "zero-shot"


def test_zero_shot_is_that_of_the_engine(tiny, answers, problem):
    assert answers["zero-shot"].accuracy(problem.labels) == accuracy(tiny, tiny.backbone.visual, problem)
    images = [pixels.permute(1, 2, 0).numpy() for pixels in problem.pixels]
    expected = tiny.predict(images, problem.support.classes).probs
    torch.testing.assert_close(answers["zero-shot"].logits.softmax(dim=1), expected)


@pytest.mark.parametrize("name", ALONE)
def test_a_head_alone_is_made_from_the_shots_zero_shot_features(tiny, answers, problem, name):
    evidence = LabelledFeatures(
        tiny.features(problem.support.images),
        torch.tensor(problem.support.labels),
        tiny.head(problem.support.classes),
        logit_scale=tiny.backbone.logit_scale,
    )
    images = tiny.read_images([pixels.permute(1, 2, 0).numpy() for pixels in problem.pixels])
    expected = HEADS[name].fit_alone(evidence).logits(tiny.features(images))
    torch.testing.assert_close(answers[name].logits, expected, rtol=1e-3, atol=1e-3)  # L-BFGS ends nearby
    assert answers[name].accuracy(problem.labels) > answers["zero-shot"].accuracy(problem.labels)


def test_the_features_are_computed_once_and_every_head_is_charged(tiny, problem):
    solver = Solver(tiny)
    found = [STUDY_METHODS[name].solve(solver, problem) for name in ("tip", "lpp")]
    seconds = solver.zero_shot(solver.shots(problem)).seconds
    assert solver.zero_shot.cache_info().misses == 2, "the shots and the test images"
    assert all(answer.seconds > seconds > 0 for answer in found)


@pytest.mark.parametrize("name", [*TRAINED, *HALFWAY])
def test_a_trained_tower_fits_the_shots_and_leaves_the_base_alone(tiny, problem, name):
    before = fingerprint(dict(tiny.backbone.visual.state_dict()))
    solver = Solver(tiny, config=FewShotConfig(steps=12, batch=6))
    learned, labels = on_shots(solver, problem, name)
    zero_shot, _ = on_shots(solver, problem, "zero-shot")
    assert loss(learned, labels) < loss(zero_shot, labels)
    assert fingerprint(dict(tiny.backbone.visual.state_dict())) == before


def test_the_learning_rate_of_fine_tuning_can_be_set(tiny, problem):
    solvers = [Solver(tiny, config=BUDGET, tune_lr=lr) for lr in (None, 1e-5)]
    own, small = (STUDY_METHODS["finetune"].solve(one, problem).logits for one in solvers)
    zero_shot = STUDY_METHODS["zero-shot"].solve(solvers[0], problem).logits
    assert (small - zero_shot).abs().max() < (own - zero_shot).abs().max()
    assert STUDY_METHODS["finetune"].facts(solvers[0]) != STUDY_METHODS["finetune"].facts(solvers[1])


@pytest.mark.parametrize("name", TRAINED)
def test_a_tower_is_shown_as_many_views_as_coefficients_learn_from(solver, problem, views, name):
    STUDY_METHODS[name].solve(solver, problem)
    assert views == [4] * 6, "steps of a batch each"
    views.clear()
    STUDY_METHODS[name].solve(Solver(solver.engine, bank=solver.bank, config=FewShotConfig(steps=2)), problem)
    assert views == [6] * 2, "a batch is never larger than the shots"


@pytest.mark.parametrize(("shots", "trainings"), [(1, 1), (2, 3)])
def test_the_long_row_passes_as_many_views_as_all_trainings_of_auto(solver, problem, views, shots, trainings):
    few = with_shots(problem, shots)
    STUDY_METHODS["finetune-half+head-long"].solve(solver, few)
    of_auto = held_out_folds(
        multi_level_features(
            solver.engine.backbone,
            solver.engine.pixels(few.support.images),
            torch.tensor(few.support.labels),
            solver.engine.head(few.support.classes),
        ),
        folds=4,
    )
    assert int(of_auto.max()) + 2 == trainings, "a training for each fold, and one on all shots"
    learned, (head_view,) = views[:-1], views[-1:]
    assert len(learned) == trainings * 6
    assert head_view == len(few.support.images), "the view that the head sees"


@pytest.mark.parametrize("name", ["tip-f", "linear-probe", *TRAINED, "atlas", "auto"])
def test_the_same_problem_has_the_same_answer(tiny, bank, answers, problem, name):
    again = STUDY_METHODS[name].solve(Solver(tiny, bank=bank, config=BUDGET), problem)
    assert torch.equal(again.logits, answers[name].logits)


def test_coefficients_learned_on_a_fitting_vector_gain(answers, problem):
    zero_shot = answers["zero-shot"].accuracy(problem.labels)
    for name in ("atlas", "atlas+tip", "atlas+lpp", "auto"):
        assert answers[name].accuracy(problem.labels) > zero_shot, name


def test_only_auto_may_fall_back(tiny, bank, problem, answers):
    assert not any(answers[name].fell_back for name in STUDY_METHODS if name != "auto")
    assert answers["auto"].estimate is not None
    assert 0 <= answers["auto"].estimate.low <= answers["auto"].estimate.accuracy


def test_the_facts_of_a_method_are_what_its_answer_depends_on(tiny, bank):
    few, many = (Solver(tiny, bank=bank, config=FewShotConfig(steps=steps)) for steps in (2, 3))
    other = Solver(tiny, bank=bank.without(["noise"]), config=FewShotConfig(steps=2))
    narrow = Solver(tiny, bank=bank.stored_as("float16"), config=FewShotConfig(steps=2))
    for name, method in STUDY_METHODS.items():
        trains = name in (*TRAINED, *HALFWAY, *MIXING)
        assert (method.facts(few) != method.facts(many)) == trains, name
        assert (method.facts(few) != method.facts(other)) == (name in MIXING), name
        assert (method.facts(few) != method.facts(narrow)) == (name in MIXING), name


def test_templates_are_those_of_the_solver_and_among_the_facts(tiny, bank, problem):
    plain, other = Solver(tiny, bank=bank), Solver(tiny, bank=bank, templates="a blurry {}")
    expected = tiny.head(problem.support.classes, templates="a blurry {}")
    assert torch.equal(other.text(problem), expected)
    assert not torch.equal(plain.text(problem), expected)
    for name in ("zero-shot", "lpp", "auto"):
        assert plain.facts(STUDY_METHODS[name]) == STUDY_METHODS[name].facts(plain)
        assert other.facts(STUDY_METHODS[name])["templates"] == ["a blurry {}"]


def test_validation_images_choose_the_epoch_of_all_but_auto(tiny, bank, folder):
    drawn = draw_problem(folder, tiny.backbone.preprocessing, settings=QUICK, validation=2, seed=1)
    solver = Solver(tiny, bank=bank, config=FewShotConfig(epochs=1, batch=4))
    for name in ("paper", "auto"):
        assert STUDY_METHODS[name].solve(solver, drawn).logits.shape == (18, 3), name


def test_the_facts_of_a_row_tell_its_own_settings_and_its_layout():
    row, given = FEW_SHOT_METHODS["paper+lpp"], FewShotConfig(steps=2)
    changes = ({"settings": {**row.settings, "lr": 0.3}}, {"layout": Layout(partitions=2)}, {"share": 0.5})
    changed = [dataclasses.replace(row, **change) for change in (*changes, {"fitted_start": False})]
    keys = [key_of(few_shot_facts(one, given)) for one in (row, *changed)]
    assert len(set(keys)) == 5
    assert key_of(few_shot_facts(dataclasses.replace(row, help="other words"), given)) == keys[0]


def test_a_row_without_settings_of_its_own_has_the_facts_of_the_config_alone():
    facts = few_shot_facts(FEW_SHOT_METHODS["atlas"], FewShotConfig())
    usual = FewShotRunSettings().as_dict() | {"share": None}
    del usual["epochs"]
    assert facts == {"config": usual}


def test_mixing_needs_a_bank_and_the_rest_does_not(tiny, problem):
    solver = Solver(Atlas(tiny.backbone), config=BUDGET)
    for name in MIXING:
        with pytest.raises(BankError, match="no bank"):
            STUDY_METHODS[name].solve(solver, problem)
    assert STUDY_METHODS["tip"].solve(solver, problem).logits.shape == (18, 3)


def test_atlas_half_stands_half_way_between_zero_shot_and_what_was_learned(solver, bank, problem):
    run = solver.engine.few_shot(problem.support, method="atlas", config=BUDGET, bank=bank, seed=problem.seed)
    whole = run.result().recipe
    assert whole.coefficients.table.any(), "something was learned"
    zero = whole.scaled(tasks=dict.fromkeys(whole.coefficients.tasks, 0.0))
    ends = [dict(solver.engine.adapted(one, bank=bank).named_parameters()) for one in (zero, whole)]
    half = whole.scaled(tasks=dict.fromkeys(whole.coefficients.tasks, 0.5))
    for name, middle in solver.engine.adapted(half, bank=bank).named_parameters():
        torch.testing.assert_close(
            middle, (ends[0][name] + ends[1][name]) / 2
        )  # to rounding: sums in float32
    answer = STUDY_METHODS["atlas-half"].solve(solver, problem)
    assert torch.equal(answer.logits, solver.engine.logits(half, problem.pixels, bank=bank).cpu())
    assert answer.seconds > 0
