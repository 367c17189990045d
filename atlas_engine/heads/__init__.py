"""Heads: from features of the image tower to class logits. They see features, never images, towers or banks.

    support = LabelledFeatures(features, labels, text, logit_scale=100.0)       # (N D), (N), (C D)
    head = HEADS["lpp"].fit_alone(support)
    logits = head.logits(new_features)                                          # (B D) -> (B C)

`base` says what a head is, each method has a module (`probe`, `tip`, `lpp`, `unlabelled`), and `registry` is
the table of all of them. `cross_validation` deals the support into folds.
"""

from __future__ import annotations
