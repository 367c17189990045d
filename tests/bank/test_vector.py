"""Task vectors: differences, sums, and the checks before anything is mixed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from atlas_engine.bank import TaskVector, fingerprint
from atlas_engine.errors import BankError


def _pair():
    base = {"conv1.weight": torch.zeros(2, 3, 1, 1), "proj": torch.ones(2, 2)}
    tuned = {"conv1.weight": torch.full((2, 3, 1, 1), 2.0), "proj": torch.tensor([[1.0, 2.0], [3.0, 1.0]])}
    return base, tuned


def test_a_vector_is_tuned_minus_base():
    base, tuned = _pair()
    vector = TaskVector.between("cars", base=base, tuned=tuned)
    assert torch.equal(vector.blocks["proj"], torch.tensor([[0.0, 1.0], [2.0, 0.0]]))
    assert vector.norm() == pytest.approx((6 * 4 + 1 + 4) ** 0.5)


def test_sums_norms_and_cosines_are_those_of_vectors(tuned_vectors):
    a, b, _ = tuned_vectors
    assert (a + b).dot(a) == pytest.approx(a.dot(a) + b.dot(a), rel=1e-5)  # float32 rounds a + b
    assert (a + a).norm() == pytest.approx(2 * a.norm())
    assert (a + a).cosine(a) == pytest.approx(1)
    opposite = replace(a, blocks={name: -tau for name, tau in a.blocks.items()})
    assert opposite.cosine(a) == pytest.approx(-1)
    assert (a + opposite).cosine(a) == 0


def test_a_whole_checkpoint_and_its_tower_give_the_same_vector(clip, theta0):
    state = clip.state_dict()
    moved = {name: weights + 1 for name, weights in state.items()}
    tower = {n: w for n, w in state.items() if n.startswith("visual.")}
    whole = TaskVector.between("one", base=tower, tuned=moved)
    assert whole.base == fingerprint(theta0) == fingerprint(dict(clip.named_parameters()))
    assert set(whole.blocks) == set(theta0)


def test_a_missing_or_misshapen_block_is_named():
    base, tuned = _pair()
    with pytest.raises(BankError, match=r"proj is missing"):
        TaskVector.between("cars", base=base, tuned={"conv1.weight": tuned["conv1.weight"]})
    with pytest.raises(BankError, match=r"proj is \(3, 2\), needs \(2, 2\)"):
        TaskVector.between("cars", base=base, tuned=tuned | {"proj": torch.ones(3, 2)})


def test_a_diverged_checkpoint_is_refused():
    base, tuned = _pair()
    with pytest.raises(BankError, match=r"NaN or infinity in proj"):
        TaskVector.between("cars", base=base, tuned=tuned | {"proj": torch.full((2, 2), torch.nan)})


def test_vectors_of_different_bases_do_not_mix(tuned_vectors):
    a, b, _ = tuned_vectors
    with pytest.raises(BankError, match="different base models"):
        a + replace(b, base="0" * 64)
    with pytest.raises(BankError, match="is missing"):
        a + replace(b, blocks={"proj": b.blocks["proj"]})


def test_the_fingerprint_is_of_content_names_and_dtype(tmp_path, theta0):
    print0 = fingerprint(theta0)
    torch.save(theta0, tmp_path / "base.pt")
    assert fingerprint(torch.load(tmp_path / "base.pt")) == print0
    touched = theta0 | {"proj": theta0["proj"].clone()}
    touched["proj"][0, 0] += 1e-6
    assert fingerprint(touched) != print0
    assert fingerprint({n: w.double() for n, w in theta0.items()}) != print0
