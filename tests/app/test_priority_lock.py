"""Runs and questions that share a device: the answers are those that each gives alone."""

from __future__ import annotations

from app.handlers.few_shot import adapt_few_shot
from app.handlers.settings import FewShotSettings


def test_a_run_between_whose_steps_others_ask_learns_the_same(small, few_shot_request, saved):
    settings = FewShotSettings(method="atlas+text-probe", steps=6)
    states = []
    for state in adapt_few_shot(small, few_shot_request, settings):
        states.append(state)
        small.compare([sample.image for sample in saved.samples], saved.recipe)
        small.predict([sample.image for sample in saved.samples], saved.recipe.classes)
    assert (states[-1].result.recipe.coefficients.values == saved.recipe.coefficients.values).all()
    assert (states[-1].result.comparison.adapted.probs == saved.comparison.adapted.probs).all()
