"""Trials of made-up accuracies, for the reports."""

from __future__ import annotations

from studies.banks.trials import Trial


def fake_trial(arm, target, seed, accuracy, *, vectors=1):
    numbers = {"shots": 4, "classes": 6, "n_test": 200, "zero_shot": 0.5, "first_loss": 1.0, "last_loss": 0.5}
    return Trial(
        arm=arm,
        target=target,
        seed=seed,
        accuracy=accuracy,
        vectors=vectors,
        outcome="finished",
        seconds=1.0,
        **numbers,
    )


TRIALS = [
    fake_trial("signs", "pets", 0, 0.52),
    fake_trial("all", "pets", 0, 0.60, vectors=2),
    fake_trial("signs", "plants", 0, 0.48),
    fake_trial("all", "plants", 0, 0.70, vectors=2),
    fake_trial("signs", "pets", 1, 0.54),
    fake_trial("all", "pets", 1, 0.60, vectors=2),
    fake_trial("signs", "plants", 1, 0.48),
    fake_trial("all", "plants", 1, 0.72, vectors=2),
]
