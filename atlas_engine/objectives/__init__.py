"""Objectives: losses over a function from images to logits. They know no banks, coefficients or models.

    objective = find_objective("entropy").make()
    loss = objective(logits_fn, Batch(images))          # a scalar, to go backward from

`base` says what an objective and a batch are, each method has a module, and `registry` is the table of those
that a method can name. `multitask` has the losses of task arithmetic.
"""

from __future__ import annotations
