"""The shapes in signatures are really checked while the tests run."""

from __future__ import annotations

import pytest
import torch

from atlas_engine.adapt.verdict import labels_per_fold


def test_a_wrong_shape_is_refused_and_a_right_one_is_not():
    assert labels_per_fold(torch.tensor([0, 1]), torch.tensor([0, 1])).shape == (3, 2)
    with pytest.raises(TypeError, match="folds"):
        labels_per_fold(torch.tensor([0, 1]), torch.tensor([0, 1, 0]))
    with pytest.raises(TypeError, match="labels"):
        labels_per_fold(torch.tensor([0.5, 1.0]), torch.tensor([0, 1]))
