"""What a bank's vectors look like: cosines and lengths, by closed form."""

from __future__ import annotations

import json

import pytest

from studies.banks.task_vectors import bank_geometry


def test_cosines_and_lengths_are_those_of_the_vectors(bank):
    parts = bank_geometry(bank)
    one, other = bank.vector("colours"), bank.vector("noise")
    assert parts.cosine[0][1] == pytest.approx(one.cosine(other), abs=1e-9)
    assert parts.cosine[1][0] == parts.cosine[0][1]
    assert parts.cosine[0][0] == pytest.approx(1.0)
    assert sum(norm**2 for norm in parts.norms[0]) ** 0.5 == pytest.approx(one.norm())


def test_layers_are_the_towers_from_the_stem_on(bank):
    parts = bank_geometry(bank)
    assert parts.layers == ("stem", "1", "2", "3")
    first_layer = [block for block in bank.blocks if block.layer == 1]
    expected = sum(float(bank.vector("noise").blocks[b.name].double().square().sum()) for b in first_layer)
    assert parts.norms[1][1] == pytest.approx(expected**0.5)


def test_a_vector_of_zeros_is_like_none(bank):
    parts = bank_geometry(bank)
    assert parts.cosine[2] == (0.0, 0.0, 0.0)
    assert parts.norms[2] == (0.0, 0.0, 0.0, 0.0)


def test_anatomy_is_plain_json(bank):
    facts = json.loads(json.dumps(bank_geometry(bank).as_dict()))
    assert facts["tasks"] == ["colours", "noise", "zero"]
    assert len(facts["norms"]) == 3
