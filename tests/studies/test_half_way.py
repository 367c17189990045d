"""Half of what is learned: between zero-shot and the learned model, and charged as the whole is."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.few_shot import FewShotConfig
from studies.methods import STUDY_METHODS, Solver
from studies.problems.few_shot import StudySettings, draw_problem

QUICK = FewShotConfig(steps=3, batch=4)


@pytest.fixture(scope="module")
def solver(tiny, bank):
    return Solver(tiny, bank=bank, config=QUICK)


@pytest.fixture(scope="module")
def problem(tiny, folder):
    return draw_problem(
        folder, tiny.backbone.preprocessing, settings=StudySettings(shots=2, max_test=9), seed=0
    )


def test_the_tower_stands_half_way_between_zero_shot_and_what_was_learned(solver, bank, problem):
    run = solver.engine.few_shot(problem.support, method="atlas", config=QUICK, bank=bank, seed=problem.seed)
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
    assert torch.equal(answer.logits, solver.engine.logits(half, problem.squares, bank=bank).cpu())
    assert answer.seconds > 0
